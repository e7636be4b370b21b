// What Python holds: reference-counted handles of the library's objects.
#pragma once

#include <tvm/ffi/object.h>

#include <memory>
#include <mutex>
#include <utility>

#include "blocks.h"
#include "longspan/engine.h"

namespace longspan::python {

namespace ffi = tvm::ffi;

class CommunicatorObj : public ffi::Object {
 public:
  explicit CommunicatorObj(std::shared_ptr<Communicator> communicator)
      : communicator(std::move(communicator)) {}
  std::shared_ptr<Communicator> communicator;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("longspan.Communicator", CommunicatorObj, ffi::Object);
};

class EngineObj : public ffi::Object {
 public:
  EngineObj(std::unique_ptr<Engine> engine, Device device)
      : engine(std::move(engine)), device(std::move(device)) {}
  std::unique_ptr<Engine> engine;
  Device device;
  std::mutex busy;  // frameworks run backward on threads of their own
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("longspan.Engine", EngineObj, ffi::Object);
};

class CallObj : public ffi::Object {
 public:
  explicit CallObj(std::shared_ptr<const Call> prepared)
      : call(std::move(prepared)), saved(*call) {}
  std::shared_ptr<const Call> call;
  SavedBlock saved;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("longspan.Call", CallObj, ffi::Object);
};

class CommunicatorRef : public ffi::ObjectRef {
 public:
  explicit CommunicatorRef(std::shared_ptr<Communicator> communicator)
      : ObjectRef(ffi::make_object<CommunicatorObj>(std::move(communicator))) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(CommunicatorRef, ffi::ObjectRef, CommunicatorObj);
};

class EngineRef : public ffi::ObjectRef {
 public:
  EngineRef(std::unique_ptr<Engine> engine, Device device)
      : ObjectRef(ffi::make_object<EngineObj>(std::move(engine), std::move(device))) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(EngineRef, ffi::ObjectRef, EngineObj);
};

class CallRef : public ffi::ObjectRef {
 public:
  explicit CallRef(std::shared_ptr<const Call> call)
      : ObjectRef(ffi::make_object<CallObj>(std::move(call))) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(CallRef, ffi::ObjectRef, CallObj);
};

}  // namespace longspan::python
