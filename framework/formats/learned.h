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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/stable_hash.h"
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
  size_t different() const { return different_; }
  // Sum of the weights.
  double total() const { return total_; }
  // Returns the place of an id; -1 if it is not in the list.
  int64_t Find(int64_t id) const {
    for (size_t at = Home(id);; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.id == id || entry.place < 0) return entry.place;
    }
  }
  // Returns the memory that Find(id) reads, for a prefetch. GCC 12 takes a function that only prefetches for one that
  // does nothing, and leaves out calls of it.
  const void* PlaceOf(int64_t id) const { return &entries_[Home(id)]; }
  // Returns true if Find mostly waits for memory.
  bool is_large() const { return different_ > 1024; }  // as many as a first-level cache holds

 private:
  // Open addressing, with an entry in one line of the cache, so that PlaceOf can name it. absl::flat_hash_map's
  // prefetch requests the first of the four lines that its group of 16 entries has.
  struct Entry {
    int64_t id = 0;
    int64_t place = -1;  // -1: free
  };
  size_t Home(int64_t id) const { return MixId(static_cast<uint64_t>(id)) & mask_; }

  std::vector<int64_t> ids_;
  std::vector<double> weights_;
  double total_ = 0;
  std::vector<Entry> entries_;  // a power of two; a quarter of them at least is free
  size_t mask_ = 0;
  size_t different_ = 0;
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
    // `name` and `of` of the lesson.
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
