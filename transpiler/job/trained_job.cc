#include "transpiler/job/trained_job.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/textproto.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "transpiler/job/decided.h"

namespace weir {
namespace {

namespace pb = google::protobuf;

// Sets a field as `from`, of the same type, has it.
void CopyField(const pb::Message& from, const pb::FieldDescriptor& field, pb::Message* to) {
  const std::unique_ptr<pb::Message> copy(from.New());
  copy->CopyFrom(from);
  to->GetReflection()->SwapFields(to, copy.get(), {&field});
}

class Taker {
 public:
  // Takes all from `trained` but what decides COURSE.
  void Take(const pb::Message& trained, const Decided& decided, pb::Message* job) {
    const pb::Descriptor& type = *trained.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const pb::FieldDescriptor& field = *type.field(i);
      const Decided inside = decided.In(field);
      if (field.containing_oneof() != nullptr) {
        TakeMember(trained, field, inside, job);
      } else if (!inside.IsCourse()) {
        TakeField(trained, field, inside, job);
      }
    }
  }

 private:
  void TakeField(const pb::Message& trained, const pb::FieldDescriptor& field, const Decided& inside,
                 pb::Message* job) {
    const pb::Reflection& reflection = *trained.GetReflection();
    if (field.cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE || field.message_type()->full_name() == kAny) {
      CopyField(trained, field, job);
    } else if (field.is_repeated()) {
      TakeElements(trained, field, inside, job);
    } else if (!inside.what().has_value()) {
      if (reflection.HasField(trained, &field) || reflection.HasField(*job, &field)) {
        Take(reflection.GetMessage(trained, &field), inside, reflection.MutableMessage(job, &field));
      }
    } else if (reflection.HasField(trained, &field) && reflection.HasField(*job, &field)) {
      Take(reflection.GetMessage(trained, &field), inside, reflection.MutableMessage(job, &field));
    } else {
      CopyField(trained, field, job);
    }
  }

  // Takes a member of a oneof, which may be set in one of the two only.
  void TakeMember(const pb::Message& trained, const pb::FieldDescriptor& field, const Decided& inside,
                  pb::Message* job) {
    const pb::Reflection& reflection = *trained.GetReflection();
    const bool had = reflection.HasField(trained, &field), has = reflection.HasField(*job, &field);
    if (had && has) {
      if (!inside.IsCourse()) TakeField(trained, field, inside, job);
    } else if (had) {
      CopyField(trained, field, job);
    } else if (has) {
      reflection.ClearField(job, &field);
    }
  }

  void TakeElements(const pb::Message& trained, const pb::FieldDescriptor& field, const Decided& inside,
                    pb::Message* job) {
    const pb::Reflection& reflection = *trained.GetReflection();
    std::map<std::pair<std::string, int>, int> present;
    for (const Element& element : ElementsOf(*job, field)) present[{element.key, element.number}] = element.index;
    const std::unique_ptr<pb::Message> made(trained.New());
    CopyField(trained, field, made.get());
    for (const Element& element : ElementsOf(trained, field)) {
      const auto found = present.find({element.key, element.number});
      if (found == present.end()) continue;
      pb::Message* const into = reflection.MutableRepeatedMessage(made.get(), &field, element.index);
      into->CopyFrom(reflection.GetRepeatedMessage(*job, &field, found->second));
      Take(reflection.GetRepeatedMessage(trained, &field, element.index), inside, into);
    }
    reflection.SwapFields(job, made.get(), {&field});
  }

  static constexpr char kAny[] = "google.protobuf.Any";
};

}  // namespace

absl::StatusOr<v1::JobConfig> ReadTrainedJob(std::string_view job_text) {
  v1::JobConfig job;
  if (ParseForeignText(job_text, &job)) return job;
  return absl::InvalidArgumentError("the job text of the checkpoint cannot be read by this build");
}

v1::JobConfig WithModelOf(const v1::JobConfig& trained, const v1::JobConfig& job) {
  v1::JobConfig made = job;
  Taker().Take(trained, Decided(), &made);
  made.set_name(trained.name());
  if (!trained.has_program()) made.clear_program();
  if (trained.has_program() && !job.has_program()) made.set_program(trained.program());
  return made;
}

}  // namespace weir
