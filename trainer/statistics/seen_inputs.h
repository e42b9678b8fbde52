// Records which of the inputs that a format looks for by name have been in examples. A misspelt name is in none, and
// the job would train on nothing.
#ifndef WEIR_TRAINER_STATISTICS_SEEN_INPUTS_H_
#define WEIR_TRAINER_STATISTICS_SEEN_INPUTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "framework/formats/line_parser.h"
#include "trainer/files/data_set.h"

namespace weir {

// Returns the inputs of a parser that must be in the data: LineParser::named_inputs without data.may_be_absent.
std::vector<NamedInput> ExpectedInputs(const LineParser& parser, const v1::Data& config);

// Thread-safe.
class SeenInputs {
 public:
  explicit SeenInputs(std::vector<NamedInput> inputs);

  // Returns the place of every input.
  std::vector<uint32_t> All() const;
  // Looks for the inputs `open` in an example, and takes those out of `open` that have been seen by now. `floats` and
  // `counts`: bytes of Example.floats and Example.counts, of any alignment; null counts: one id in every slot.
  void Look(const char* floats, const char* counts, std::vector<uint32_t>* open);
  // Says that examples which are not looked at have had all inputs but those with these names.
  void SeeAllBut(const std::set<std::string>& names);
  // Returns the places of those that have not been seen.
  std::vector<uint32_t> Absent() const;
  const std::vector<NamedInput>& inputs() const { return inputs_; }

 private:
  const std::vector<NamedInput> inputs_;
  // Relaxed: a flag that is only set, and nothing is read because of it.
  std::vector<std::atomic<bool>> seen_;
};

// Returns the names of inputs for a message: "feature 'User' and feature 'Item'".
std::string NamesOf(const std::vector<NamedInput>& inputs, absl::Span<const uint32_t> places);

// Returns "; the first record of t.tfrecord has label, user" for a message; "" if that cannot be told. Reads the file.
std::string InFirstRecord(const LineParser& parser, const DataSet& data);

}  // namespace weir

#endif  // WEIR_TRAINER_STATISTICS_SEEN_INPUTS_H_
