#include "providers/cudnn/cudnn.h"

#include <fmt/format.h>

#include "providers/cudnn/library.h"
#include "providers/cudnn/plan.h"
#include "providers/cudnn/rules.h"
#include "providers/rules.h"

namespace longspan {

constinit const Cudnn kCudnn;

Verdict Cudnn::consider(const TileProblem& problem, const Device& device) const {
  if (auto decline = cudnn::refusal(problem, device)) return *decline;
  const Result<const cudnn::Library*> library = cudnn::library();
  if (!library.ok()) return Decline{DeclineCode::kDevice, library.error().message};
  return Offer{.detail = fmt::format("cuDNN {} at {}", cudnn::version_text((*library)->version),
                                     (*library)->path),
               .partials_16bit = true};
}

Result<std::shared_ptr<const Plan>> Cudnn::prepare(const TileProblem& problem,
                                                   const Device& device) const {
  LONGSPAN_CHECK_OK(preparable(cudnn::refusal(problem, device)));
  LONGSPAN_TRY([[maybe_unused]] const cudnn::Library* const library, cudnn::library());
  return std::shared_ptr<const Plan>(std::make_shared<cudnn::CudnnPlan>(problem, device.ordinal));
}

}  // namespace longspan
