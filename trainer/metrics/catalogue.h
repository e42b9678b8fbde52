// Ranks of the items of examples among all candidates of a catalogue (v1::Metric::Catalogue), for metrics of an
// evaluation.
#ifndef WEIR_TRAINER_METRICS_CATALOGUE_H_
#define WEIR_TRAINER_METRICS_CATALOGUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/formats/learned.h"
#include "framework/formats/schema.h"
#include "framework/tensor/tensor.h"
#include "ops/item_ranks.h"
#include "proto/job.pb.h"
#include "trainer/data/lane_reader.h"

namespace weir {

// Ids variable of the data, and how its ids are made of raw ones (trainer/data/features.h).
struct IdVariable {
  // Finds a variable among the columns of a reader. NotFound: it is none of ids.
  static absl::StatusOr<IdVariable> Find(const std::string& name, const v1::JobConfig& job,
                                         const std::vector<Column>& columns);

  int64_t Raw(size_t slot, int64_t id) const;
  int64_t FromRaw(size_t slot, int64_t raw) const;
  bool is_text() const { return kind == IdKind::kText; }

  std::string name;
  size_t column = 0;  // of the reader
  bool shared = false;
  IdKind kind = IdKind::kUnknown;    // of the first slot
  std::vector<uint64_t> salts = {};  // by slot
  // Ids of nothing, which are no candidates.
  std::vector<int64_t> padding = {};
  // Not null: a raw id is the value of a vocabulary, and its place there is the candidate.
  std::shared_ptr<const IdList> list = nullptr;
};

// Settings of a catalogue. Immutable.
struct CataloguePlan {
  // `learned` (may be null): has the vocabularies of the job. `path`: "metric[0].recall.catalogue". InvalidArgument:
  // the ids are hashes of texts; `without` has ids of another kind; the program does not keep the query and the item;
  // the catalogue is too large.
  static absl::StatusOr<CataloguePlan> Create(const v1::Metric::Catalogue& catalogue, const v1::JobConfig& job,
                                              const v1::ProgramDesc& program, const std::vector<Column>& columns,
                                              const Learned* learned, const std::string& path);

  // Returns the candidate of an id of the variable, `id` or one of `without`; -1 if it is none.
  int64_t CandidateOf(const IdVariable& variable, size_t slot, int64_t value) const;

  // Returns whether a candidate stands for nothing (padding_id).
  bool IsPadding(int64_t candidate) const;
  // Returns whether both have the same candidates and vectors.
  bool HasItemsOf(const CataloguePlan& other) const {
    return item == other.item && id.name == other.id.name && first == other.first && items == other.items;
  }

  std::string query, item;  // variables of the program
  IdVariable id;
  std::vector<IdVariable> without;
  // Candidate i is the raw id first + i.
  int64_t first = 0, items = 0;
  int64_t width = 0;
};

// Queries of one catalogue that wait to be ranked. Not thread-safe.
class CatalogueQueries {
 public:
  // Uses a rank, or null for an item that is no candidate, of the `index`th example that Add was given.
  using Use = std::function<void(int64_t index, const ItemRank* rank)>;

  explicit CatalogueQueries(const CataloguePlan* plan) : plan_(plan) {}

  // Sets the vectors of the candidates. `pool` is borrowed.
  void SetItems(std::shared_ptr<const PackedItems> items, ThreadPool* pool);
  // Keeps the ids of a batch, by lane of this process.
  void TakeIds(const std::vector<LaneBatch>& batches);
  // Adds the examples of a lane that have a label of one half and more: query [B, W]. Calls add(i) for each, i in [0,
  // B).
  absl::Status Add(int lane, const Tensor& query, const std::vector<float>& labels,
                   const std::function<void(size_t example)>& add);
  // Whether so many queries wait that they should be ranked.
  bool full() const { return static_cast<int64_t>(items_of_.size()) >= kMost; }
  // Ranks what waits and forgets it; `use` sees the queries in the order of Add, with indexes from 0.
  void Rank(const Use& use);
  // Number of examples that were ranked, and of those whose item is no candidate.
  int64_t ranked() const { return ranked_; }
  int64_t unknown() const { return unknown_; }

 private:
  static constexpr int64_t kMost = 4096;
  // Candidates that a lane's examples of the current batch name.
  struct LaneIds {
    std::vector<int64_t> item;  // -1: no candidate
    std::vector<int64_t> without;
    std::vector<size_t> without_end;
  };

  const CataloguePlan* plan_;
  std::shared_ptr<const PackedItems> items_;
  ThreadPool* pool_ = nullptr;
  std::vector<LaneIds> lanes_;
  // Queries that wait: vectors [n, width], items, and the ends of their parts of without_.
  std::vector<float> vectors_;
  std::vector<int64_t> items_of_;
  std::vector<int64_t> without_;
  std::vector<size_t> without_end_;
  int64_t ranked_ = 0, unknown_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_METRICS_CATALOGUE_H_
