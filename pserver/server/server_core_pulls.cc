#include <utility>

#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "pserver/server/server_core_impl.h"

namespace weir {

namespace {

const ProfileName kRowsPull("Pull rows"), kBlocksPull("Pull blocks");

}  // namespace

bool ServerCoreImpl::Serve(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
                           std::shared_ptr<const void> credit, const ReplyCallback& reply,
                           const HandledCallPtr& handled) {
  answers_->Serve(request, payload, info, std::move(credit), reply, handled);
  if (!IsOfReader(request)) return false;
  MutexLock lock(&mu_);
  return pulls_->EndRead(request);
}

void ServerCoreImpl::ServeAll(std::vector<WaitingPull> pulls, const VersionInfo& info) {
  options_.pool->ParallelFor(static_cast<int64_t>(pulls.size()), [&](int64_t i) {
    WaitingPull& pull = pulls[static_cast<size_t>(i)];
    (void)Serve(pull.request, pull.payload, info, std::move(pull.credit), pull.reply, pull.handled);
  });
}

void ServerCoreImpl::HandlePull(const Slices& bytes, const ReplyCallback& reply, const HandledCallPtr& handled) {
  v1::PullRequest request;
  Slices ids;
  if (absl::Status opened = OpenRequest(bytes, "Pull", Callers::kReadersToo, &request, &ids); !opened.ok()) {
    return reply(opened);
  }
  const Slice payload = CopyOf(ids, &buffers_);
  if (absl::Status valid = answers_->Check(request, payload); !valid.ok()) return reply(valid);

  Actions actions;
  VersionInfo info;
  std::shared_ptr<const void> credit;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(const absl::Time now, ActFor(request.caller(), &actions));
    // A profile shows the calls of each trainer.
    if (!IsOfReader(request)) {
      HandledCall::Describe(handled, request.caller().trainer(),
                            mode_->facts().pulls_name_steps ? request.version() : -1,
                            AsksForRows(request) ? kRowsPull : kBlocksPull);
    }
    info = mode_->version();
    credit = pulls_->TakeReady(request, now);
    if (credit != nullptr) return absl::OkStatus();
    const absl::Time deadline = WaitUntil(now, request.wait_s());
    if (deadline > now) {
      const int id = request.caller().trainer();
      return pulls_->Keep({id, std::move(request), payload, TotalSize(bytes), deadline, reply, handled});
    }
    actions.push_back([reply, answer = NotReady(info.version, pulls_->WaitingFor(request))] { reply(answer); });
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) return reply(status);
  if (credit != nullptr && Serve(request, payload, info, std::move(credit), reply, handled)) Advance();
}

}  // namespace weir
