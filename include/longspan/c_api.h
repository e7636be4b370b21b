/* The engine calls for C and for languages that speak C.
 *
 * Every function returns 0 on success and otherwise one of the longspan_code values, with the
 * message in *error when error is not NULL. Handles are freed by their own function; a communicator
 * must outlive its engines only until longspan_engine_create returned (it is shared from then on).
 * One engine is used by one thread at a time. Functions named collective are called by all ranks.
 */
#ifndef LONGSPAN_C_API_H_
#define LONGSPAN_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum longspan_code {
  LONGSPAN_OK = 0,
  LONGSPAN_INVALID_ARGUMENT = 1,
  LONGSPAN_UNSUPPORTED = 2,
  LONGSPAN_GUARD_FAILED = 3,
  LONGSPAN_PEER_LOST = 4,
  LONGSPAN_TIMEOUT = 5,
  LONGSPAN_OUT_OF_MEMORY = 6,
  LONGSPAN_DRIVER = 7,
  LONGSPAN_INTERNAL = 8
};

typedef struct longspan_error {
  int32_t code;
  char message[1024]; /* cut where longer; always ends in 0 */
} longspan_error;

enum longspan_dtype { LONGSPAN_F64 = 0, LONGSPAN_F32 = 1, LONGSPAN_F16 = 2, LONGSPAN_BF16 = 3 };
enum longspan_direction { LONGSPAN_FORWARD = 0, LONGSPAN_BACKWARD = 1 };
enum longspan_side { LONGSPAN_QUERY = 0, LONGSPAN_KEY = 1 };

/* [batch, seq, heads, dim]; strides in elements, dim contiguous. Packed tensors have batch 1. */
typedef struct longspan_tensor {
  void* data;
  int32_t dtype;
  int64_t batch, seq, heads, dim;
  int64_t stride_batch, stride_seq, stride_head;
  const int32_t* pages; /* paged keys and values: tensor.h; NULL otherwise */
  int64_t page_count;
} longspan_tensor;

/* What only some problems have; see SideOperands in engine.h. NULL and 0 mean absent. */
typedef struct longspan_sides {
  const longspan_tensor* sink;      /* [1, 1, heads, 1], for sink=learnable */
  const longspan_tensor* slopes;    /* likewise, for alibi; absent: the default ones */
  const longspan_tensor* bias;      /* [batch or 1, sq, heads or 1, skv] */
  const longspan_tensor* max_logit; /* written by forward, as sink */
  const longspan_tensor* dsink;     /* written by backward */
  const longspan_tensor* dbias;
  double softcap; /* 0: the problem's */
  /* Used where set is not 0, else the problem's. */
  int32_t dropout_set;
  double dropout;
  uint64_t dropout_seed, dropout_offset;
  /* For device_lengths: one entry per sequence of the problem. */
  const int32_t* lengths_q;
  const int32_t* lengths_k;
} longspan_sides;

typedef struct longspan_device longspan_device;
typedef struct longspan_communicator longspan_communicator;
typedef struct longspan_engine longspan_engine;
typedef struct longspan_call longspan_call;

/* "MAJOR.MINOR.PATCH" of the library that is loaded. */
const char* longspan_version(void);

/* The host's processor with `threads` threads, 0 for all cores. */
int32_t longspan_device_cpu(int32_t threads, longspan_device** device, longspan_error* error);
void longspan_device_free(longspan_device* device);

/* `ranks` communicators for threads of this process, in `nodes` blocks; communicators[ranks]. */
int32_t longspan_communicator_threads(int32_t ranks, int32_t nodes,
                                      longspan_communicator** communicators, longspan_error* error);
/* This process's rank of MPI_COMM_WORLD; nodes 0: by host. */
int32_t longspan_communicator_mpi(int32_t nodes, longspan_communicator** communicator,
                                  longspan_error* error);

/* One side of a message: see communicator.h. */
typedef struct longspan_transfer {
  int32_t send; /* 1 send, 0 receive */
  int32_t peer;
  uint32_t tag;
  void* data;
  size_t bytes;
} longspan_transfer;

/* A process group of the caller's own. start posts transfers and names them by *request >= 0; wait
 * returns 0 when they are done, LONGSPAN_PEER_LOST when a peer is gone or the time is over. abandon
 * may be NULL. node_of_rank has `ranks` entries, or is NULL for one node. */
typedef struct longspan_callbacks {
  void* context;
  int32_t rank, ranks;
  const int32_t* node_of_rank;
  int32_t (*start)(void* context, const longspan_transfer* transfers, size_t count,
                   int64_t* request);
  int32_t (*wait)(void* context, int64_t request, int64_t milliseconds);
  void (*abandon)(void* context, int32_t code, const char* message);
} longspan_callbacks;
int32_t longspan_communicator_callback(const longspan_callbacks* callbacks,
                                       longspan_communicator** communicator, longspan_error* error);
void longspan_communicator_free(longspan_communicator* communicator);

/* Levels of longspan_options.log: what log.h says of them. */
enum longspan_log_level { LONGSPAN_LOG_INFO = 0, LONGSPAN_LOG_WARNING = 1, LONGSPAN_LOG_ERROR = 2 };

/* NULL or 0 fields take the default, which the comments give. */
typedef struct longspan_options {
  const char* forward_strategy;  /* auto */
  const char* backward_strategy; /* auto; none: forward alone */
  const char* forward_provider;  /* auto; or prefer:NAME, require:NAME, off:NAME */
  const char* backward_provider; /* auto */
  const char* partition;         /* auto */
  int32_t require_fp32_partials; /* 0 */
  int64_t deadline_ms;           /* 60000 */
  int32_t uniform_lengths;       /* 0; 1: a promise, see promise.h */
  /* Silence. Gets a line about each cold event on the engine's thread, valid during the call; must
   * not use the engine that calls it. Options::log of engine.h. */
  void (*log)(void* context, int32_t level, const char* message);
  void* log_context;         /* handed to log */
  int64_t score_bytes;       /* the provider's own; Options::score_bytes of engine.h */
  const char* routing_table; /* the one of the library; or the path of another, routing_table.h */
} longspan_options;

/* options may be NULL. */
int32_t longspan_engine_create(const longspan_options* options, longspan_communicator* communicator,
                               longspan_device* device, longspan_engine** engine,
                               longspan_error* error);
void longspan_engine_free(longspan_engine* engine);

/* Collective when cold. `problem` is the text form. */
int32_t longspan_prepare(longspan_engine* engine, const char* problem, longspan_call** call,
                         longspan_error* error);
void longspan_call_free(longspan_call* call);

/* The plan of a call as bytes, for longspan_load here or elsewhere, in any front end: the same on
 * every rank. *size becomes their number; they are written where capacity suffices, so that a first
 * call with capacity 0 asks for it. */
int32_t longspan_call_plan(const longspan_call* call, char* bytes, size_t capacity, size_t* size,
                           longspan_error* error);
/* Collective when cold. Prepares what the bytes of a plan say, choosing nothing anew; refuses what
 * another version of the library, another kind of device or another provider recorded. */
int32_t longspan_load(longspan_engine* engine, const char* bytes, size_t size, longspan_call** call,
                      longspan_error* error);

/* Rows of this rank's tensors on one side, and how they split into batch x seq. */
int64_t longspan_call_rows(const longspan_call* call, int32_t side);
int64_t longspan_call_batch(const longspan_call* call, int32_t side);
/* Writes longspan_call_rows global row numbers: the rows that this rank's tensor holds, in order.
 */
void longspan_call_indices(const longspan_call* call, int32_t side, int64_t* indices);
size_t longspan_call_workspace_bytes(const longspan_call* call, int32_t direction);
/* Buffers that forward fills for backward and the caller allocates, aligned to 64 bytes. */
size_t longspan_call_saved_count(const longspan_call* call);
size_t longspan_call_saved_bytes(const longspan_call* call, size_t index);

/* Collective. `saved` has longspan_call_saved_count pointers. scale is the problem's. `sides` may
 * be NULL. */
int32_t longspan_forward(longspan_engine* engine, const longspan_call* call,
                         const longspan_tensor* q, const longspan_tensor* k,
                         const longspan_tensor* v, const longspan_tensor* o,
                         const longspan_tensor* lse, const longspan_sides* sides,
                         void* const* saved, void* workspace, size_t workspace_bytes,
                         longspan_error* error);
int32_t longspan_backward(longspan_engine* engine, const longspan_call* call,
                          const longspan_tensor* q, const longspan_tensor* k,
                          const longspan_tensor* v, const longspan_tensor* o,
                          const longspan_tensor* lse, const longspan_tensor* dout,
                          const longspan_tensor* dq, const longspan_tensor* dk,
                          const longspan_tensor* dv, const longspan_sides* sides,
                          void* const* saved, void* workspace, size_t workspace_bytes,
                          longspan_error* error);

#ifdef __cplusplus
}
#endif

#endif /* LONGSPAN_C_API_H_ */
