#include "trainer/resume_check.h"

#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace weir {
namespace {

// Another build may have written what this one cannot read; the log of the caller says so once.
class Silent : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

absl::Status Same(const std::string& path, std::string_view field, const std::string& was, const std::string& is) {
  if (was == is) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: ", path, " was trained with ", std::string(field), " ", was, ", the job says ", is,
      ": what follows would be neither run's; set it back, or start a fresh run without --resume"));
}

std::string Files(const v1::DataSource& source) { return absl::StrCat("[", absl::StrJoin(source.files(), ", "), "]"); }

}  // namespace

absl::Status CheckResumable(const std::string& path, const v1::CheckpointManifest& manifest, const v1::JobConfig& job,
                            const v1::Plan& plan) {
  if (manifest.has_seed()) {
    RETURN_IF_ERROR(Same(path, "train.seed", absl::StrCat(manifest.seed()), absl::StrCat(plan.seed())));
  }
  if (manifest.has_lanes()) {
    RETURN_IF_ERROR(Same(path, "train.lanes", absl::StrCat(manifest.lanes()), absl::StrCat(plan.lanes())));
  }
  if (manifest.has_scheme_version()) {
    RETURN_IF_ERROR(Same(path, "the placement scheme", absl::StrCat(manifest.scheme_version()),
                         absl::StrCat(plan.scheme_version())));
  }
  // Without lanes every trainer has a stream of its own.
  if (plan.lanes() == 0 && manifest.data().trainers() > 0) {
    RETURN_IF_ERROR(Same(path, "distribute.trainers", absl::StrCat(manifest.data().trainers()), absl::StrCat(plan.trainers())));
  }
  if (manifest.job_text().empty()) return absl::OkStatus();
  v1::JobConfig earlier;
  google::protobuf::TextFormat::Parser parser;
  Silent errors;
  parser.RecordErrorsTo(&errors);
  parser.AllowUnknownField(true);
  parser.AllowPartialMessage(true);
  if (!parser.ParseFromString(manifest.job_text(), &earlier)) {
    LOG(WARNING) << "--resume: the job in the manifest of " << path << " cannot be read by this build; its data settings are not "
                 << "compared with this job's";
    return absl::OkStatus();
  }
  const v1::Data& was = earlier.data();
  const v1::Data& is = job.data();
  for (const auto& [field, before, now] :
       {std::tuple{"data.batch_size", absl::StrCat(was.batch_size()), absl::StrCat(is.batch_size())},
        std::tuple{"data.shuffle", v1::Data::Shuffle_Name(was.shuffle()), v1::Data::Shuffle_Name(is.shuffle())},
        std::tuple{"data.shuffle_memory_mb", absl::StrCat(was.shuffle_memory_mb()), absl::StrCat(is.shuffle_memory_mb())},
        std::tuple{"data.shuffle_window", absl::StrCat(was.shuffle_window()), absl::StrCat(is.shuffle_window())},
        std::tuple{"data.drop_last", std::string(was.drop_last() ? "true" : "false"),
                   std::string(is.drop_last() ? "true" : "false")},
        std::tuple{"train.accumulate_steps", absl::StrCat(earlier.train().accumulate_steps()),
                   absl::StrCat(job.train().accumulate_steps())},
        std::tuple{"train.workers", absl::StrCat(earlier.train().workers()), absl::StrCat(job.train().workers())},
        std::tuple{"data.train.files", Files(was.train()), Files(is.train())}}) {
    RETURN_IF_ERROR(Same(path, field, before, now));
  }
  return absl::OkStatus();
}

}  // namespace weir
