#include "framework/watch/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "framework/base/atomic_file.h"
#include "framework/base/crc32c.h"
#include "framework/base/status_macros.h"
#include "framework/base/utf8.h"

namespace weir {
namespace {

constexpr char kFileVersion[] = "brain.Event:2";
constexpr char kHParamsPlugin[] = "hparams";
// Version of the format of graphs that the reader checks; any that it knows will do.
constexpr int kGraphProducer = 22;
// More files than this with one name would be a mistake.
constexpr int kMostSameNames = 1000;

// A value that no float comes near to is infinite.
float AsFloat(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (value > kLargest) return std::numeric_limits<float>::infinity();
  if (value < -kLargest) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(value);
}

std::string HostName() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host(name);
  std::replace(host.begin(), host.end(), '/', '_');
  return host;
}

// A value without a value: what it says is in its metadata, for the plugin.
v1::TbEvent PluginEvent(const char* tag, const char* plugin, const std::string& content) {
  v1::TbEvent event;
  v1::TbValue* const value = event.mutable_summary()->add_value();
  value->set_tag(tag);
  value->mutable_metadata()->mutable_plugin()->set_name(plugin);
  value->mutable_metadata()->mutable_plugin()->set_content(content);
  value->mutable_tensor()->set_type(v1::TbTensor::FLOAT);
  value->mutable_tensor()->mutable_shape()->add_dim()->set_size(0);
  return event;
}

v1::TbEvent HParamsEvent(const char* tag, v1::TbHParams content) {
  content.set_version(0);
  return PluginEvent(tag, kHParamsPlugin, content.SerializeAsString());
}

v1::TbExperiment::HParam::Type TypeOf(const EventFile::HParam& value) {
  if (std::holds_alternative<std::string>(value)) return v1::TbExperiment::HParam::STRING;
  if (std::holds_alternative<bool>(value)) return v1::TbExperiment::HParam::BOOL;
  return v1::TbExperiment::HParam::NUMBER;
}

v1::TbEvent TextEvent(std::string_view tag, const char* plugin, std::string text) {
  v1::TbEvent event;
  v1::TbValue* const value = event.mutable_summary()->add_value();
  value->set_tag(ToUtf8(tag));
  value->mutable_metadata()->mutable_plugin()->set_name(plugin);
  v1::TbTensor* const tensor = value->mutable_tensor();
  tensor->set_type(v1::TbTensor::STRING);
  // The shape of a single value: no dimensions.
  tensor->mutable_shape();
  tensor->add_string_value(std::move(text));
  return event;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& directory) {
  return Create(directory, Options());
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& directory, Options options) {
  if (options.suffix.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("the suffix of an event file is \"", options.suffix, "\"; expected a name without '/'"));
  }
  RETURN_IF_ERROR(CreateDirectories(directory));
  const std::string begin = absl::StrFormat("events.out.tfevents.%010d.%s.%d",
                                            absl::ToUnixSeconds(options.clock->Now()), HostName(), ::getpid());
  const std::string end = options.suffix.empty() ? "" : absl::StrCat(".", options.suffix);
  for (int i = 0;; ++i) {
    const std::string number = i == 0 ? "" : absl::StrCat(".", i);
    const std::string path = JoinPath(directory, absl::StrCat(begin, number, end));
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
      if (errno == EEXIST && i < kMostSameNames) continue;
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot create the event file ", path));
    }
    std::unique_ptr<EventFile> file(new EventFile(path, fd, std::move(options)));
    v1::TbEvent version;
    version.set_file_version(kFileVersion);
    file->Add(std::move(version));
    if (absl::Status written = file->Flush(); !written.ok()) {
      ::unlink(path.c_str());
      return written;
    }
    return file;
  }
}

EventFile::~EventFile() {
  Flush().IgnoreError();
  ::close(fd_);
}

double EventFile::Now() const { return absl::ToDoubleSeconds(options_.clock->Now() - absl::UnixEpoch()); }

void EventFile::Scalar(std::string_view tag, int64_t step, double value) {
  const double now = Now();
  const bool ascii = IsAscii(tag);
  MutexLock lock(&mu_);
  scalar_.set_wall_time(now);
  scalar_.set_step(step);
  v1::TbSummary* const summary = scalar_.mutable_summary();
  v1::TbValue* const scalar = summary->value_size() == 0 ? summary->add_value() : summary->mutable_value(0);
  if (ascii) {
    scalar->mutable_tag()->assign(tag.data(), tag.size());
  } else {
    scalar->set_tag(ToUtf8(tag));
  }
  scalar->set_scalar(AsFloat(value));
  Append(scalar_);
}

void EventFile::Histogram(std::string_view tag, int64_t step, const EventHistogram& histogram) {
  v1::TbEvent event;
  event.set_step(step);
  v1::TbValue* const value = event.mutable_summary()->add_value();
  value->set_tag(ToUtf8(tag));
  v1::TbHistogram* const to = value->mutable_histogram();
  to->set_min(histogram.min);
  to->set_max(histogram.max);
  to->set_num(histogram.num);
  to->set_sum(histogram.sum);
  to->set_sum_squares(histogram.sum_squares);
  to->mutable_bucket_limit()->Add(histogram.limits.begin(), histogram.limits.end());
  to->mutable_bucket()->Add(histogram.counts.begin(), histogram.counts.end());
  Add(std::move(event));
}

void EventFile::Text(std::string_view tag, int64_t step, std::string_view markdown) {
  v1::TbEvent event = TextEvent(tag, "text", ToUtf8(markdown));
  event.set_step(step);
  Add(std::move(event));
}

void EventFile::Graph(const std::vector<Node>& nodes) {
  v1::TbGraph graph;
  graph.mutable_versions()->set_producer(kGraphProducer);
  for (const Node& node : nodes) {
    v1::TbNode* const to = graph.add_node();
    to->set_name(ToUtf8(node.name));
    to->set_op(ToUtf8(node.op));
    for (const std::string& input : node.inputs) to->add_input(ToUtf8(input));
    to->set_device(ToUtf8(node.device));
    for (const auto& [key, text] : node.attributes) {
      v1::TbNode::Attribute* const attribute = to->add_attribute();
      attribute->set_key(ToUtf8(key));
      attribute->mutable_value()->set_text(ToUtf8(text));
    }
  }
  v1::TbEvent event;
  event.set_graph(graph.SerializeAsString());
  Add(std::move(event));
}

void EventFile::HParams(const std::map<std::string, HParam>& values, const std::vector<std::string>& metric_tags) {
  v1::TbHParams experiment, start;
  experiment.mutable_experiment()->set_time_created(Now());
  start.mutable_session_start()->set_start_time(Now());
  // Without the values that a hyperparameter may have: the reader takes the experiment of one run for those of all.
  for (const auto& [name, value] : values) {
    v1::TbExperiment::HParam* const hparam = experiment.mutable_experiment()->add_hparam();
    hparam->set_name(ToUtf8(name));
    hparam->set_type(TypeOf(value));
    v1::TbSessionStart::Entry* const entry = start.mutable_session_start()->add_hparam();
    entry->set_key(ToUtf8(name));
    if (const auto* text = std::get_if<std::string>(&value)) entry->mutable_value()->set_text(ToUtf8(*text));
    if (const auto* number = std::get_if<double>(&value)) entry->mutable_value()->set_number(*number);
    if (const auto* flag = std::get_if<bool>(&value)) entry->mutable_value()->set_flag(*flag);
  }
  for (const std::string& tag : metric_tags) {
    experiment.mutable_experiment()->add_metric()->mutable_name()->set_tag(ToUtf8(tag));
  }
  Add(HParamsEvent("_hparams_/experiment", std::move(experiment)));
  Add(HParamsEvent("_hparams_/session_start_info", std::move(start)));
}

void EventFile::HParamsEnd(bool success) {
  v1::TbHParams end;
  end.mutable_session_end()->set_status(success ? v1::TbSessionEnd::SUCCESS : v1::TbSessionEnd::FAILURE);
  end.mutable_session_end()->set_end_time(Now());
  Add(HParamsEvent("_hparams_/session_end_info", std::move(end)));
}

void EventFile::Layout(const std::vector<Chart>& charts) {
  v1::TbLayout layout;
  layout.set_version(0);
  std::map<std::string, v1::TbLayout::Category*> categories;
  for (const Chart& chart : charts) {
    v1::TbLayout::Category*& category = categories[chart.category];
    if (category == nullptr) {
      category = layout.add_category();
      category->set_title(ToUtf8(chart.category));
    }
    v1::TbLayout::Chart* const to = category->add_chart();
    to->set_title(ToUtf8(chart.title));
    for (const std::string& tag : chart.tags) to->mutable_lines()->add_tag(ToUtf8(tag));
  }
  Add(TextEvent("custom_scalars__config__", "custom_scalars", layout.SerializeAsString()));
}

void EventFile::Resumed(int64_t step) {
  v1::TbEvent event;
  event.set_step(step);
  event.mutable_session()->set_status(v1::TbSession::START);
  Add(std::move(event));
}

void EventFile::Add(v1::TbEvent event) {
  event.set_wall_time(Now());
  MutexLock lock(&mu_);
  Append(event);
}

void EventFile::Append(const v1::TbEvent& event) {
  // The length, which is little-endian like every machine that we run on, its checksum, and that of the record.
  constexpr size_t kFraming = sizeof(uint64_t) + 2 * sizeof(uint32_t);
  const uint64_t size = event.ByteSizeLong();
  const size_t begin = buffer_.size();
  if (size + kFraming > options_.max_buffered_bytes || begin + size + kFraming > options_.max_buffered_bytes) {
    ++dropped_;
    return;
  }
  buffer_.resize(begin + size + kFraming);
  char* const at = buffer_.data() + begin;
  char* const record = at + sizeof(size) + sizeof(uint32_t);
  std::memcpy(at, &size, sizeof size);
  const uint32_t size_crc = MaskedCrc32c(at, sizeof size);
  std::memcpy(at + sizeof size, &size_crc, sizeof size_crc);
  event.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(record));
  const uint32_t crc = MaskedCrc32c(record, size);
  std::memcpy(record + size, &crc, sizeof crc);
}

absl::Status EventFile::Flush() {
  std::string data;
  int64_t dropped = 0;
  {
    MutexLock lock(&mu_);
    if (flushing_) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, " is being flushed by another thread; one thread at a time may flush it"));
    }
    flushing_ = true;
    data.swap(buffer_);
    dropped = dropped_;
  }
  absl::Status written = Write(data);
  MutexLock lock(&mu_);
  flushing_ = false;
  if (written.ok()) {
    if (dropped == 0) return written;
    // Reported once, now that it is known how many they were.
    dropped_ -= dropped;
    return absl::ResourceExhaustedError(absl::StrCat(path_, " lacks ", dropped, " records: more than ",
                                                     options_.max_buffered_bytes,
                                                     " bytes waited to be written; flush it more often"));
  }
  // Bytes that were added meanwhile come after it.
  data.append(buffer_);
  buffer_.swap(data);
  if (dropped == 0) return written;
  return absl::Status(written.code(), absl::StrCat(written.message(), "; ", dropped, " records were dropped"));
}

absl::Status EventFile::Write(std::string_view data) {
  int64_t at = size_;
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd_, data.data(), data.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n == 0 ? ENOSPC : errno;
      // A part of a record would hide all later ones from the reader.
      const bool whole = at == size_ || ::ftruncate(fd_, size_) == 0;
      return absl::ErrnoToStatus(
          error, absl::StrCat("cannot write ", path_, whole ? "" : ", whose last record is cut until it can be"));
    }
    at += n;
    data.remove_prefix(static_cast<size_t>(n));
  }
  size_ = at;
  return absl::OkStatus();
}

}  // namespace weir
