// What the options of proto/agreement.proto say of the fields of a job: what a field decides, and which elements of two
// jobs are the same one. For sources: this header includes google/protobuf/descriptor.h.
#ifndef WEIR_TRANSPILER_JOB_DECIDED_H_
#define WEIR_TRANSPILER_JOB_DECIDED_H_

#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/agreement.pb.h"
#include "proto/job.pb.h"

namespace weir {

// What a message decides by where it is in a job; by default, that of the job itself.
class Decided {
 public:
  // Returns what the field decides, with all fields inside it that do not say otherwise.
  Decided In(const google::protobuf::FieldDescriptor& field) const;
  // Returns nullopt if each field inside says it by itself.
  std::optional<v1::Decides> what() const { return what_; }
  // Returns true if the field makes no difference to a model or its training.
  bool IsCourse() const { return what_ == v1::COURSE; }

 private:
  std::optional<v1::Decides> what_;
  // Paths of fields inside that decide COURSE.
  std::vector<std::string> course_;
};

// An element of a repeated field.
struct Element {
  // Text by which it is known, wherever it stands; "" if it is known by its place.
  std::string key;
  // Number of this element among those with its key.
  int number = 0;
  int index = -1;
};

// Returns the elements of a repeated field that are no mere layout of a file: columns and slots that are skipped are
// left out.
std::vector<Element> ElementsOf(const google::protobuf::Message& message,
                                const google::protobuf::FieldDescriptor& field);

// Returns true if the elements of the repeated field are about variables of the data, and sets *variable to the one of
// `element`.
bool IsAboutVariable(const google::protobuf::FieldDescriptor& field, const Element& element, std::string* variable);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_DECIDED_H_
