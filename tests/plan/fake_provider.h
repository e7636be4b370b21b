// A provider that counts what it is asked and answers as told.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "longspan/provider.h"

namespace longspan::test {

class FakePlan final : public Plan {
 public:
  explicit FakePlan(TileProblem prepared) : problem(std::move(prepared)) {}
  size_t workspace_bytes() const override { return 0; }
  Status forward(const ForwardTiles&, Workspace) const override { return {}; }
  Status backward(const BackwardTiles&, Workspace) const override { return {}; }

  const TileProblem problem;
};

class FakeProvider final : public Provider {
 public:
  using Answer = std::function<Verdict(const TileProblem&)>;

  explicit FakeProvider(
      std::string name, Answer answer = [](const TileProblem&) { return Offer{}; })
      : name_(std::move(name)), answer_(std::move(answer)) {}

  std::string_view name() const override { return name_; }
  std::string_view summary() const override { return "for tests"; }
  Result<std::string> identity(const Problem&, Direction, const Device&) const override {
    return std::string("1");
  }
  Verdict consider(const TileProblem& problem, const Device&) const override {
    considered.fetch_add(1);
    return answer_(problem);
  }
  Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                              const Device&) const override {
    prepared.fetch_add(1);
    if (on_prepare) on_prepare();
    if (failures.load() > 0) {
      failures.fetch_sub(1);
      return Error{ErrorCode::kOutOfMemory, "no memory for the plan", name_};
    }
    return std::shared_ptr<const Plan>(std::make_shared<FakePlan>(problem));
  }

  mutable std::atomic<int> considered{0};
  mutable std::atomic<int> prepared{0};
  mutable std::atomic<int> failures{0};  // so many calls of prepare fail
  std::function<void()> on_prepare;

 private:
  std::string name_;
  Answer answer_;
};

inline FakeProvider declining(std::string name, std::string detail) {
  return FakeProvider(std::move(name), [detail = std::move(detail)](const TileProblem&) {
    return Decline{DeclineCode::kHeadDim, detail};
  });
}

}  // namespace longspan::test
