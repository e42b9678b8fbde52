// A checkpoint that a job starts from: what its manifest says it holds, under the names that the job gives it.
#ifndef WEIR_TRANSPILER_START_START_SOURCE_H_
#define WEIR_TRANSPILER_START_START_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/graph/op_registry.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "proto/start.pb.h"
#include "re2/re2.h"
#include "transpiler/start/name_patterns.h"
#include "transpiler/start/program_elements.h"

namespace weir {

struct Job;

// Not thread-safe: records what is used.
class StartSource {
 public:
  struct Dense {
    std::string name;
    std::vector<int64_t> dims;
    std::set<std::string> states;
  };
  struct Table {
    std::string name;
    int64_t width = 0, rows = 0;
  };

  // Opens job.config.start_from(index), whose files have the sizes that its manifest says: their contents are verified
  // when they are read. Errors name the field with its place.
  // `meanings`: of the job's inputs (DataMeanings).
  static absl::StatusOr<std::unique_ptr<StartSource>> Open(const Job& job, int index,
                                                           const std::map<std::string, std::string>& meanings);

  int index() const { return index_; }
  const v1::StartFrom& config() const { return *config_; }
  // The checkpoint's path, for messages.
  const std::string& name() const { return path_; }
  v1::StartSource Describe() const;
  void AddAncestors(v1::Lineage* lineage) const;

  // Returns what this job takes under a name, after rename and take; null and empty: nothing. Several tables are merged
  // in the order of the rules.
  const Dense* FindDense(std::string_view name) const;
  std::vector<const Table*> FindTables(std::string_view name) const;
  // Returns whether it has something of this name.
  bool Gives(std::string_view name) const { return FindDense(name) != nullptr || !FindTables(name).empty(); }
  // Returns whether anything has been taken.
  bool used() const { return !used_.empty(); }
  // Records that a parameter or table is taken.
  void Use(const Dense& dense) { used_.insert(dense.name); }
  void Use(const Table& table) { used_.insert(table.name); }
  // Returns what no one has taken, under its names here, with the bytes of its values.
  std::vector<std::pair<std::string, int64_t>> Unused() const;

  // Returns the names of a parameter's elements by its job's program, under their names here; nullopt if that job has
  // no model that this build can read, of which why_no_program() says why.
  std::optional<ElementAxes> Axes(const Dense& dense) const;
  // Returns ProgramElements::places of its program, by their names here. Requires: has_program().
  const std::map<std::string, ProgramElements::Place, std::less<>>& places() const { return elements_->places(); }
  bool has_program() const { return elements_ != nullptr; }
  const std::string& why_no_program() const { return why_no_program_; }
  // Returns its job; null if this build cannot read it, or it has a program in place of a model.
  const v1::JobConfig* job() const { return job_.has_value() ? &*job_ : nullptr; }
  // Returns whether it holds statistics of its data, and how its job reads them; null: that cannot be read.
  bool has_statistics() const;
  const v1::Data* data() const { return job_.has_value() ? &job_->data() : nullptr; }
  // Returns true if its model reads this slot or column of the data.
  bool Reads(const std::string& input) const;
  const std::set<std::string>& read_inputs() const { return read_inputs_; }
  // Returns how an input was read there if that is another way than here; "" if it is the same.
  std::string OtherMeaning(const std::string& input) const;
  // All parts of names that it has.
  const std::set<std::string>& parts() const { return parts_; }

  bool SaidDrop(std::string_view name) { return drop_.Matches(name); }
  // The same, without counting as a use of the pattern.
  bool HasDrop(std::string_view name) const { return drop_.Has(name); }
  // Returns the patterns of rename, take and drop that match nothing, with their fields.
  std::vector<std::pair<std::string, std::string>> UnusedPatterns() const;

 private:
  struct Rule {
    std::unique_ptr<const RE2> from;
    std::string to;
    mutable bool used = false;
  };

  StartSource() = default;
  absl::Status ReadVariables(const Job& job);
  // Returns the error of two parameters that get the same name here.
  absl::Status TwoOfOneName(const Job& job, const std::string& here, const std::string& a, const std::string& b) const;
  void ReadProgram(const std::map<std::string, std::string>& meanings);
  // Returns the names here of a name there: those of all rules that match, else the name itself.
  std::vector<std::string> Renamed(const std::string& name) const;
  void RenameProgram(v1::ProgramDesc* main, const std::set<std::string>& data) const;

  int index_ = 0;
  const v1::StartFrom* config_ = nullptr;  // of the job
  std::string path_;
  v1::CheckpointManifest manifest_;
  std::vector<Rule> rules_;
  NamePatterns take_, drop_;
  std::map<std::string, Dense> dense_;  // by name there
  std::map<std::string, Table> tables_;
  std::map<std::string, std::string, std::less<>> dense_here_;                // by name here
  std::map<std::string, std::vector<std::string>, std::less<>> tables_here_;  // likewise
  std::set<std::string> used_;
  std::unique_ptr<const v1::ProgramDesc> main_;  // null: no program
  std::unique_ptr<const ProgramElements> elements_;
  std::string why_no_program_;
  std::optional<v1::JobConfig> job_;
  std::set<std::string> read_inputs_;
  std::set<std::string> parts_;
  std::map<std::string, std::string> other_meanings_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_START_START_SOURCE_H_
