// Defines what derived variables and columns of classes learn before training, of the data or of files beside the job:
// lists of ids, boundaries, classes (docs/data.md, "Learned from the data"). trainer/data/statistics.h obtains them,
// and a parser uses them.
#ifndef WEIR_FRAMEWORK_FORMATS_LEARNED_H_
#define WEIR_FRAMEWORK_FORMATS_LEARNED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/formats/example.h"
#include "proto/job.pb.h"

namespace weir {

// Raw ids, each with its place in the list and its weight. Immutable; thread-safe.
class IdList {
 public:
  // `weights`: one for each id, or none.
  IdList(std::vector<int64_t> ids, std::vector<double> weights);

  const std::vector<int64_t>& ids() const { return ids_; }
  // Counts of learned lists, which are whole numbers; empty for a vocabulary from a file.
  const std::vector<double>& weights() const { return weights_; }
  // Number of ids that differ: all, unless the list is damaged.
  size_t different() const { return places_.size(); }
  // Sum of the weights.
  double total() const { return total_; }
  // Returns the place of an id; -1 if it is not in the list.
  int64_t Find(int64_t id) const {
    const auto found = places_.find(id);
    return found == places_.end() ? -1 : found->second;
  }

 private:
  std::vector<int64_t> ids_;
  std::vector<double> weights_;
  double total_ = 0;
  absl::flat_hash_map<int64_t, int64_t> places_;
};

// Something that a job learns: for a variable of data.derived, or for a column of data.csv.
struct Lesson {
  enum Kind { kVocabulary, kFrequency, kPopularity, kQuantiles, kClasses };
  Kind kind = kVocabulary;
  // Index in data.derived; of kClasses, in data.csv.column.
  int index = 0;
  // Name of that variable or column.
  std::string name = {};
  // Name of its input; of kClasses, of the column.
  std::string of = {};
  // File with the list, relative to the job file; empty: data.train.
  std::string file = {};

  bool from_data() const { return file.empty(); }
  // Returns InvalidArgument "data.derived[2]: 'word': <text>".
  absl::Status Error(std::string_view text) const;
};

// Returns what a job learns, in the order of data.derived, and then classes in the order of data.csv.column.
std::vector<Lesson> Lessons(const v1::Data& data);

// Holds what a job has learned.
struct Learned {
  struct One {
    Lesson::Kind kind = Lesson::kVocabulary;
    int index = 0;
    // Those of the lesson.
    std::string name = {};
    std::string of = {};
    std::shared_ptr<const IdList> list = nullptr;  // of vocabularies, frequencies, popularities; never null there
    std::vector<double> boundaries = {};           // of quantiles, ascending
    std::vector<std::string> classes = {};         // ascending
  };
  std::vector<One> lessons = {};

  bool Has(Lesson::Kind kind, int index) const;
  // Returns the list of a variable of data.derived; null if there is none.
  std::shared_ptr<const IdList> ListOf(int derived) const;
  // Returns whether this is what a job with these settings learns.
  bool IsOf(const v1::Data& data) const;
  // Returns what is of the kinds and at the indexes that such a job learns: statistics may be of another one.
  Learned For(const v1::Data& data) const;
};

// Returns settings with the classes that have been learned, and with boundaries in place of the wish to learn them.
// `learned` holds nothing that the job does not learn.
v1::Data WithLearned(const v1::Data& data, const Learned& learned);

// Reads a list of ids from the text of a file: a text or a number per line as the ids of `of` are, and with `weights`
// blanks and a weight above 0 behind it. `name`: of the file, for errors, which are InvalidArgument and name the line.
absl::StatusOr<IdList> ParseIdList(std::string_view text, const std::string& name, IdKind kind, bool weights);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_LEARNED_H_
