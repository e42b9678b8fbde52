// Conversion of examples to the variables that the program reads: transforms of floats, ids of slots.
#ifndef WEIR_TRAINER_DATA_FEATURES_H_
#define WEIR_TRAINER_DATA_FEATURES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/formats/line_parser.h"
#include "framework/tensor/tensor.h"
#include "trainer/data/data_spec.h"
#include "trainer/files/record.h"

namespace weir {

class DataStatistics;

// Settings of the job for each position of Example.floats and each slot. Immutable; thread-safe.
class Features {
 public:
  struct Float {
    v1::DenseTransform::Transform transform = v1::DenseTransform::NONE;
    std::vector<float> boundaries = {};
  };
  struct Slot {
    uint64_t salt = 0;
    bool shared = false;
    bool counted = true;  // by statistics: neither drawn nor learned from the data
    bool learned = false;
    std::vector<int64_t> padding = {};  // raw
  };

  // Creates the features. InvalidArgument names a variable or column of the job that the reader does not give, or an
  // invalid setting.
  static absl::StatusOr<Features> Create(const DataSpec& spec, const LineParser& parser);

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<Float>& floats() const { return floats_; }
  const std::vector<Slot>& slots() const { return slots_; }
  // Positions in Example.floats that must not be missing, with the variable's name.
  const std::vector<std::pair<int64_t, std::string>>& required() const { return required_; }
  // Positions of labels that reach a loss unchanged.
  const std::vector<std::pair<int64_t, LabelRange>>& label_ranges() const { return label_ranges_; }
  bool standardizes() const { return standardizes_; }

  // Fills one Variable per column with the examples of `records`. `statistics`: required if the job needs them, else
  // null.
  void MakeBatch(const std::vector<Record>& records, const DataStatistics* statistics,
                 std::vector<Variable>* vars) const;

 private:
  // Columns of ids that follow each other and are made together where each of their slots gives one value: narrow plain
  // ones. A wide column, and one that is not plain, is a group by itself.
  struct IdGroup {
    size_t slot = 0;   // the first
    size_t width = 0;  // slots
    bool plain = true;
    std::vector<size_t> columns = {};
  };

  // Sets plain_, and the groups.
  void FindPlainColumns();
  void FindIdGroups();
  void AddFloats(size_t begin, size_t width, bool plain, const char* in, const DataStatistics* statistics,
                 float* out) const;
  // Make columns of ids from the ids of the records that begin at next[r], and move next[r] behind them.
  void MakeGroup(const IdGroup& group, const std::vector<Record>& records, const DataStatistics* statistics,
                 std::vector<size_t>* next, std::vector<Variable>* vars) const;
  void MakeOneValueEach(const std::vector<Record>& records, size_t slot, absl::Span<const size_t> columns,
                        std::vector<size_t>* next, std::vector<Variable>* vars) const;
  void MakeIds(const std::vector<Record>& records, size_t slot, size_t width, bool salted,
               const DataStatistics* statistics, std::vector<size_t>* next, IdBatch* out) const;
  IdBatch& IdsOf(size_t column, std::vector<Variable>* vars) const;
  std::vector<bool> ColumnsOfOneValue(const IdGroup& group, const std::vector<Record>& records) const;
  bool OneValueEach(size_t begin, size_t width, const Record::View& view) const;
  size_t SaltSlots(size_t begin, size_t width, const Record::View& view, size_t id, int64_t* values) const;
  void AddSlot(size_t slot, const Record::View& view, size_t* id, const DataStatistics* statistics, IdBatch* out) const;
  float Transform(size_t position, float x, const DataStatistics* statistics) const;
  // Returns the id that the program sees.
  int64_t Id(const Slot& slot, int64_t raw, const DataStatistics* statistics) const;

  std::vector<Column> columns_;
  std::vector<Float> floats_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> salts_;       // of slots_, concatenated
  std::vector<int64_t> missing_ids_;  // likewise
  // True, by column, for floats that are not transformed and for slots of ids that are only salted.
  std::vector<bool> plain_;
  std::vector<bool> keeps_missing_;  // by column: missing floats stay NaN
  std::vector<IdGroup> id_groups_;   // all columns of ids, in their order
  std::vector<std::pair<int64_t, std::string>> required_;
  std::vector<std::pair<int64_t, LabelRange>> label_ranges_;
  bool standardizes_ = false;
  bool missing_id_ = true;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_FEATURES_H_
