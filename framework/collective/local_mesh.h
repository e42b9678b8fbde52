// Ranks of a collective group in one process, one thread or more each: verification of a split, tests. Messages are
// copied when both ends are there; by a seed some wait a little first, so that the order of arrival differs from run to
// run.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_LOCAL_MESH_H_
#define WEIR_FRAMEWORK_COLLECTIVE_LOCAL_MESH_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/collective/mesh.h"

namespace weir {

class LocalMeshes {
 public:
  // shuffle: seed of short delays; 0: none.
  explicit LocalMeshes(int ranks, uint64_t shuffle = 0);
  ~LocalMeshes();

  // Lets ranks receive messages of any size. Called before the first message.
  void TakeAnySize() { takes_any_size_ = true; }
  Mesh* mesh(int rank) { return meshes_[static_cast<size_t>(rank)].get(); }
  // Bytes that the rank has sent.
  int64_t sent(int rank) const;
  // Cuts a rank off from the others, at once or when it has sent `sent_bytes`: neither direction delivers any more.
  void Cut(int rank, int64_t sent_bytes = 0);
  // Number of messages that were given up before they arrived.
  int64_t given_up() const { return given_up_; }

 private:
  class RankMesh;
  struct Message;
  using Key = std::tuple<int, int, uint64_t>;  // from, to, tag

  Mutex mu_;
  std::map<Key, std::shared_ptr<Message>> sends_ ABSL_GUARDED_BY(mu_), receives_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> cut_at_ ABSL_GUARDED_BY(mu_);  // bytes that the rank may send
  const uint64_t shuffle_;
  bool takes_any_size_ = false;  // constant once messages move
  std::atomic<uint64_t> messages_{0};
  std::atomic<int64_t> given_up_{0};
  std::vector<std::atomic<int64_t>> sent_;
  std::vector<std::unique_ptr<Mesh>> meshes_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_LOCAL_MESH_H_
