// NCCL, loaded at run time from the machine that runs the program: nothing of it is needed to build Weir, and no
// program links it. The types are those of NCCL's documented C interface, of version 2.18 and later.
#ifndef WEIR_PSERVER_COLLECTIVE_NCCL_LIBRARY_H_
#define WEIR_PSERVER_COLLECTIVE_NCCL_LIBRARY_H_

#include <climits>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// ncclComm_t, and cudaStream_t.
using NcclComm = struct NcclCommOpaque*;
using NcclStream = void*;

// ncclUniqueId
struct NcclUniqueId {
  char internal[128] = {};
};

// ncclResult_t
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};

// ncclDataType_t; those that are used
enum NcclType : int {
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};

// ncclRedOp_t; those that are used
enum NcclReduction : int { kNcclSum = 0, kNcclProduct = 1, kNcclMax = 2, kNcclMin = 3 };

// ncclConfig_t as in version 2.18. A library reads as many bytes as `size` says, and knows from `version` which fields
// these are. INT_MIN and null mean: as the library likes.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int unused = INT_MIN;  // padding in 2.18; an integer in later versions, which may read it
};
static_assert(sizeof(NcclConfig) == 48 && offsetof(NcclConfig, blocking) == 16 && offsetof(NcclConfig, net_name) == 32);

// Functions that are used, with their names in the library.
struct NcclFunctions {
  NcclResult (*get_version)(int* version) = nullptr;        // ncclGetVersion
  NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;  // ncclGetUniqueId
  NcclResult (*init_rank)(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                          NcclConfig* config) = nullptr;                      // ncclCommInitRankConfig
  NcclResult (*finalize)(NcclComm comm) = nullptr;                            // ncclCommFinalize
  NcclResult (*destroy)(NcclComm comm) = nullptr;                             // ncclCommDestroy
  NcclResult (*abort)(NcclComm comm) = nullptr;                               // ncclCommAbort
  NcclResult (*get_async_error)(NcclComm comm, NcclResult* error) = nullptr;  // ncclCommGetAsyncError
  const char* (*error_string)(NcclResult result) = nullptr;                   // ncclGetErrorString
  const char* (*last_error)(NcclComm comm) = nullptr;                         // ncclGetLastError
  NcclResult (*group_start)() = nullptr;                                      // ncclGroupStart
  NcclResult (*group_end)() = nullptr;                                        // ncclGroupEnd
  NcclResult (*send)(const void* from, size_t count, NcclType type, int peer, NcclComm comm,
                     NcclStream stream) = nullptr;  // ncclSend
  NcclResult (*receive)(void* to, size_t count, NcclType type, int peer, NcclComm comm,
                        NcclStream stream) = nullptr;  // ncclRecv
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, NcclType type, NcclReduction reduction,
                           NcclComm comm, NcclStream stream) = nullptr;  // ncclAllReduce
  NcclResult (*reduce_scatter)(const void* from, void* to, size_t count_of_one, NcclType type, NcclReduction reduction,
                               NcclComm comm, NcclStream stream) = nullptr;  // ncclReduceScatter
  NcclResult (*all_gather)(const void* from, void* to, size_t count_of_one, NcclType type, NcclComm comm,
                           NcclStream stream) = nullptr;  // ncclAllGather
  NcclResult (*broadcast)(const void* from, void* to, size_t count, NcclType type, int root, NcclComm comm,
                          NcclStream stream) = nullptr;  // ncclBroadcast
};

// Thread-safe.
class NcclLibrary {
 public:
  // Oldest version with all that is used: non-blocking communicators that can be aborted, finalized and configured.
  static constexpr int kOldest = 21800;

  // Returns the library that this process uses: the file that WEIR_NCCL_LIBRARY names, else libnccl.so.2 where the
  // loader looks (LD_LIBRARY_PATH, ldconfig). It stays loaded until the process ends, since it may have threads.
  // FailedPrecondition: not found (says where it was looked for and what to install), a function is missing, or it is
  // older than kOldest.
  static absl::StatusOr<const NcclLibrary*> Load();
  // Likewise, from a file or name that the loader finds.
  static absl::StatusOr<const NcclLibrary*> Load(const std::string& file);

  const NcclFunctions& functions() const { return functions_; }
  // File from which it was loaded.
  const std::string& path() const { return path_; }
  // 22809, and "2.28.9".
  int version() const { return version_; }
  std::string VersionText() const { return VersionText(version_); }
  static std::string VersionText(int version);

  // Returns OK for success and for "in progress"; else an error with the library's own words. InvalidArgument and
  // wrong usage are FailedPrecondition (two ranks on one device are such), an error of the system or of another rank is
  // Unavailable. comm may be null.
  absl::Status Check(NcclResult result, std::string_view what, NcclComm comm) const;

 private:
  NcclLibrary() = default;
  absl::Status Open(const std::string& file);

  void* handle_ = nullptr;
  NcclFunctions functions_;
  std::string path_;
  int version_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_COLLECTIVE_NCCL_LIBRARY_H_
