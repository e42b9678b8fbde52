#include "pserver/collective/nccl_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"

namespace weir {

namespace {

constexpr char kVariable[] = "WEIR_NCCL_LIBRARY";
constexpr char kName[] = "libnccl.so.2";

template <typename Function>
absl::Status Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it has no function ", name, ": it is no NCCL, or one before 2.18; install a later one"));
}

std::string PathOf(void* library, const std::string& otherwise) {
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name[0] == '\0') return otherwise;
  return map->l_name;
}

}  // namespace

std::string NcclLibrary::VersionText(int version) {
  // Up to 2.8 the number has one digit less.
  const int major = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / major, ".", version % major / 100, ".", version % 100);
}

absl::Status NcclLibrary::Open(const std::string& file) {
  handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* const why = ::dlerror();
    return absl::FailedPreconditionError(absl::StrCat("NCCL is not there: ", why == nullptr ? file : why,
                                                      ". It comes with NVIDIA's packages (libnccl2) and with a PyTorch "
                                                      "for CUDA; LD_LIBRARY_PATH names its folder, or ",
                                                      kVariable, " the file"));
  }
  path_ = PathOf(handle_, file);
  NcclFunctions& f = functions_;
  const auto find = [&]() -> absl::Status {
    RETURN_IF_ERROR(Find(handle_, "ncclGetVersion", &f.get_version));
    RETURN_IF_ERROR(Find(handle_, "ncclGetUniqueId", &f.get_unique_id));
    RETURN_IF_ERROR(Find(handle_, "ncclCommInitRankConfig", &f.init_rank));
    RETURN_IF_ERROR(Find(handle_, "ncclCommFinalize", &f.finalize));
    RETURN_IF_ERROR(Find(handle_, "ncclCommDestroy", &f.destroy));
    RETURN_IF_ERROR(Find(handle_, "ncclCommAbort", &f.abort));
    RETURN_IF_ERROR(Find(handle_, "ncclCommGetAsyncError", &f.get_async_error));
    RETURN_IF_ERROR(Find(handle_, "ncclGetErrorString", &f.error_string));
    RETURN_IF_ERROR(Find(handle_, "ncclGetLastError", &f.last_error));
    RETURN_IF_ERROR(Find(handle_, "ncclGroupStart", &f.group_start));
    RETURN_IF_ERROR(Find(handle_, "ncclGroupEnd", &f.group_end));
    RETURN_IF_ERROR(Find(handle_, "ncclSend", &f.send));
    RETURN_IF_ERROR(Find(handle_, "ncclRecv", &f.receive));
    RETURN_IF_ERROR(Find(handle_, "ncclAllReduce", &f.all_reduce));
    RETURN_IF_ERROR(Find(handle_, "ncclReduceScatter", &f.reduce_scatter));
    RETURN_IF_ERROR(Find(handle_, "ncclAllGather", &f.all_gather));
    return Find(handle_, "ncclBroadcast", &f.broadcast);
  };
  if (const absl::Status found = find(); !found.ok()) {
    return absl::Status(found.code(), absl::StrCat(path_, ": ", found.message()));
  }
  RETURN_IF_ERROR(Check(f.get_version(&version_), "asking for its version", nullptr));
  if (version_ >= kOldest) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path_, " is NCCL ", VersionText(), "; ", VersionText(kOldest), " or later is needed"));
}

absl::StatusOr<const NcclLibrary*> NcclLibrary::Load(const std::string& file) {
  static Mutex* const mu = new Mutex();
  static auto* const loaded = new std::map<std::string, const NcclLibrary*>();
  MutexLock lock(mu);
  const NcclLibrary*& library = (*loaded)[file];
  if (library == nullptr) {
    std::unique_ptr<NcclLibrary> fresh(new NcclLibrary());
    RETURN_IF_ERROR(fresh->Open(file));
    library = fresh.release();
  }
  return library;
}

absl::StatusOr<const NcclLibrary*> NcclLibrary::Load() {
  const char* const given = std::getenv(kVariable);
  return Load(given != nullptr && given[0] != '\0' ? given : kName);
}

absl::Status NcclLibrary::Check(NcclResult result, std::string_view what, NcclComm comm) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return absl::OkStatus();
  std::string text =
      absl::StrCat("NCCL: ", absl::string_view(what.data(), what.size()), ": ", functions_.error_string(result));
  if (const char* const last = functions_.last_error(comm); last != nullptr && last[0] != '\0') {
    absl::StrAppend(&text, " (", last, ")");
  }
  switch (result) {
    case kNcclInvalidArgument:
    case kNcclInvalidUsage:
      return absl::FailedPreconditionError(text);
    case kNcclSystemError:
    case kNcclRemoteError:
      return absl::UnavailableError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace weir
