// Values of other examples, drawn at random, by which importance replaces those of a part.
//
// The examples that give values are those with the smallest hashes of seed and place among all of the input, whatever
// trainer reads them, so that they are the same on any cluster. An example gets the values of one of them, which is a
// function of seed, repeat and its own place.
#ifndef WEIR_TRAINER_PREDICT_DRAWN_VALUES_H_
#define WEIR_TRAINER_PREDICT_DRAWN_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/formats/example.h"
#include "framework/tensor/tensor.h"
#include "proto/importance.pb.h"
#include "trainer/data/lane_options.h"
#include "trainer/predict/parts.h"

namespace weir {

// Draws examples of one trainer. Thread-safe.
class ExampleDraw {
 public:
  // Values are drawn from at most so many examples, ...
  static constexpr size_t kMostExamples = size_t{1} << 15;
  // ... and the first of them whose messages are at most as large: all trainers send theirs through server 0.
  static constexpr size_t kMostBytes = size_t{16} << 20;

  // `columns`: of the reader. `read`: indexes of those whose values are kept.
  ExampleDraw(uint64_t seed, std::vector<Column> columns, std::vector<size_t> read);

  void Add(const LaneBatch& batch);
  // Returns the drawn examples, a v1::DrawnExamples.
  std::string Serialize();

 private:
  void Shorten(size_t examples) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t seed_;
  const std::vector<Column> columns_;
  const std::vector<size_t> read_;
  Mutex mu_;
  std::vector<v1::DrawnExample> drawn_ ABSL_GUARDED_BY(mu_);
  uint64_t limit_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;  // ranks above it are not drawn any more
};

// Immutable; thread-safe.
class DrawnValues {
 public:
  // Merges what all trainers have drawn. DataLoss: it cannot be read. InvalidArgument: there are no examples.
  static absl::StatusOr<DrawnValues> Merge(uint64_t seed, const std::vector<Column>& columns,
                                           const std::vector<size_t>& read, const std::vector<std::string>& drawn);

  int64_t examples() const { return examples_; }
  // Replaces a place of all examples of a batch: vars are copies of batch.vars.
  void Replace(const InputPlace& place, int repeat, const LaneBatch& batch, std::vector<Variable>* vars) const;

 private:
  int64_t Draw(int repeat, const InputPosition& position) const;

  uint64_t seed_ = 0;
  int64_t examples_ = 0;
  std::vector<Variable> vars_;  // by column of the reader; those that are not read are empty
};

// Takes the values of a place away in all examples of `vars`: floats become 0, and a slot has the missing id, or with
// `missing_id` false nothing.
void Blank(const InputPlace& place, bool missing_id, std::vector<Variable>* vars);

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_DRAWN_VALUES_H_
