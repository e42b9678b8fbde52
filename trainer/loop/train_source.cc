#include "trainer/loop/train_source.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "trainer/files/stream_rule.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

std::string SkippedText(int64_t lines) {
  return lines > 0 ? absl::StrCat("; ", lines, " lines were skipped (data.bad_line: SKIP)") : "";
}

class ListedFiles : public TrainSource {
 public:
  ListedFiles(const Job* job, DataSet files) : TrainSource(job, std::move(files)) {}

  std::vector<Input> Inputs() const override { return {DataInput("data.train", files_)}; }
  bool CutsBy(int scheme) const override { return weir::CutsBy(scheme, files_.files()); }
  bool HasPlaces() const override { return true; }
  int64_t FirstStepIn(const v1::TrainerState& state) const override { return state.first_step_examples(); }
  absl::Status Begin(Follower::Options options, const v1::StreamPlaces& places) override {
    batches_ = options.step * options.batches_per_step;
    places_ = places;
    return absl::OkStatus();
  }
  absl::StatusOr<DataSet> FirstFiles() override { return files_; }
  bool FirstFilesMayBeGone() const override { return false; }
  absl::StatusOr<std::unique_ptr<LaneReader>> Reader(LaneReaderOptions options) override {
    ASSIGN_OR_RETURN(std::unique_ptr<LaneReader> reader, LaneReader::Create(files_, std::move(options)));
    if (batches_ > 0) reader->SkipTo(batches_, places_);
    return reader;
  }
  FileCourse& course() override { return course_; }
  absl::Status NoExamples(int64_t skipped_lines, int64_t stream_batch) const override {
    std::vector<std::string> names;
    for (const DataFile& file : files_.files()) names.push_back(absl::StrCat(file.name, " (", file.bytes, " bytes)"));
    if (names.size() > 3) names.resize(3);
    return absl::InvalidArgumentError(absl::StrCat(
        "data.train: there are no examples to train on in ", files_.files().size(),
        files_.files().size() == 1 ? " file" : " files", ": ", absl::StrJoin(names, ", "),
        files_.files().size() > 3 ? ", ..." : "", files_.where().empty() ? "" : "; data.train.where may leave out all",
        SkippedText(skipped_lines),
        job_.config.data().drop_last()
            ? absl::StrCat("; a stream gives whole batches only, of ", stream_batch, " examples (data.drop_last)")
            : ""));
  }

 private:
  int64_t batches_ = 0;  // of each stream, in the state that the run begins with
  v1::StreamPlaces places_;
  FileCourse course_;
};

class FilesThatFollow : public TrainSource {
 public:
  FilesThatFollow(const Job* job, DataSet none) : TrainSource(job, std::move(none)) {}

  std::vector<Input> Inputs() const override { return {}; }
  bool CutsBy(int scheme) const override { return CutsFollowedBy(scheme); }
  bool HasPlaces() const override { return false; }
  // The files are compared one by one.
  int64_t FirstStepIn(const v1::TrainerState& /*state*/) const override { return 0; }
  absl::Status Begin(Follower::Options options, const v1::StreamPlaces& /*places*/) override {
    ASSIGN_OR_RETURN(follower_, Follower::Create(std::move(options)));
    return absl::OkStatus();
  }
  absl::StatusOr<DataSet> FirstFiles() override {
    ASSIGN_OR_RETURN(const std::shared_ptr<const DataSet> first, follower_->AwaitFirst());
    return *first;
  }
  bool FirstFilesMayBeGone() const override { return follower_->takes_over(); }
  absl::StatusOr<std::unique_ptr<LaneReader>> Reader(LaneReaderOptions options) override {
    options.followed = follower_->files();
    options.starts = follower_->starts();
    return LaneReader::Create(files_, std::move(options));
  }
  FileCourse& course() override { return *follower_; }
  absl::Status NoExamples(int64_t skipped_lines, int64_t /*stream_batch*/) const override {
    return absl::InvalidArgumentError(
        absl::StrCat("data.train: no file with an example to train on has appeared before '",
                     job_.config.data().follow().until(), "' (data.follow.until)", SkippedText(skipped_lines)));
  }

 private:
  std::unique_ptr<Follower> follower_;  // null before Begin
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrainSource>> TrainSource::Open(const Job* job) {
  const v1::Data& data = job->config.data();
  if (data.has_follow()) {
    ASSIGN_OR_RETURN(DataSet none, DataSet::OpenFound(data, data.train(), job->directory, "data.train", {}));
    return std::make_unique<FilesThatFollow>(job, std::move(none));
  }
  ASSIGN_OR_RETURN(DataSet files, DataSet::Open(data, data.train(), job->directory, "data.train"));
  return std::make_unique<ListedFiles>(job, std::move(files));
}

}  // namespace weir
