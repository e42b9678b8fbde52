#include "tools/machine/machine_report.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <link.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/thread_budget.h"
#include "framework/graph/format_version.h"
#include "framework/tensor/cuda_machine.h"
#include "gloo/config.h"
#include "google/protobuf/stubs/common.h"
#include "google/protobuf/util/json_util.h"
#include "grpcpp/grpcpp.h"
#include "ops/arithmetic.h"
#include "ops/device/cublas_library.h"
#include "pserver/collective/backends.h"
#include "pserver/collective/nccl_library.h"
#include "pserver/network/local_address.h"
#include "pserver/protocol/handshake.h"
#include "pserver/sockets/unix_socket.h"

namespace weir {

namespace {

namespace fs = std::filesystem;

// Address for documentation: the route to it is that to other networks. Nothing is sent.
constexpr char kElsewhere[] = "192.0.2.1:9";

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string PathOf(void* library) {
  link_map* map = nullptr;
  return ::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : "";
}

void AddVersions(v1::MachineReport* report) {
  const auto add = [&](const char* name, const std::string& version) {
    v1::MachineReport::Version* const added = report->add_version();
    added->set_name(name);
    added->set_version(version);
  };
  add("wire", absl::StrCat(kWireVersion));
  add("program format", absl::StrCat(kProgramFormatVersion));
  add("gRPC", grpc::Version());
  add("protobuf", google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION));
  add("Gloo", absl::StrCat(GLOO_VERSION_MAJOR, ".", GLOO_VERSION_MINOR, ".", GLOO_VERSION_PATCH));
  const dnnl_version_t& dnnl = *dnnl_version();
  add("oneDNN", absl::StrCat(dnnl.major, ".", dnnl.minor, ".", dnnl.patch));
}

void AddProcessor(const std::string& root, v1::MachineReport::Processor* processor) {
  processor->set_usable_cores(UsableCores());
  processor->set_cores(static_cast<int32_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
  processor->set_avx2(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  processor->set_avx512(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
  processor->set_arithmetic(ResolvedArithmetic());
  if (HasBf16Unit(Bf16Unit::kAvx512)) processor->set_arithmetic_bf16(ResolvedArithmetic(ProductPrecision::kBf16));
  for (v1::MachineReport::NumaNode& node : NumaNodes(root)) *processor->add_numa_node() = std::move(node);
}

void AddCuda(const CudaMachine& machine, v1::MachineReport::Cuda* cuda) {
  if (!machine.runtime.empty()) cuda->set_runtime(machine.runtime);
  if (!machine.driver.empty()) cuda->set_driver(machine.driver);
  if (!machine.usable.ok()) cuda->set_why_not(std::string(machine.usable.message()));
  for (size_t d = 0; d < machine.devices.size(); ++d) {
    const CudaMachine::Device& device = machine.devices[d];
    v1::MachineReport::Device* const added = cuda->add_device();
    added->set_number(static_cast<int32_t>(d));
    added->set_name(device.name);
    added->set_memory_bytes(device.memory);
    added->set_capability(device.capability);
    added->set_bus(device.bus);
    for (int peer : device.peers) added->add_peer(peer);
  }
}

// Asks cuBLAS and cuBLASLt, which need no device for it.
void AddCublas(v1::MachineReport* report) {
  v1::MachineReport::Library* const cublas = report->add_library();
  cublas->set_name("cuBLAS");
  const absl::StatusOr<void*> library = device::OpenCublasLibrary();
  if (!library.ok()) {
    cublas->set_why_not(std::string(library.status().message()));
    return;
  }
  cublas->set_path(PathOf(*library));
  // cublasGetProperty(libraryPropertyType, int*): 0 major, 1 minor, 2 patch.
  if (const auto property = reinterpret_cast<int (*)(int, int*)>(::dlsym(*library, "cublasGetProperty"))) {
    int parts[3] = {};
    for (int p = 0; p < 3; ++p) (void)property(p, &parts[p]);
    cublas->set_version(absl::StrCat(parts[0], ".", parts[1], ".", parts[2]));
  }
  v1::MachineReport::Library* const lt = report->add_library();
  lt->set_name("cuBLASLt");
  void* const symbol = ::dlsym(*library, "cublasLtGetVersion");
  Dl_info info;
  if (symbol == nullptr || ::dladdr(symbol, &info) == 0) {
    lt->set_why_not("cuBLAS comes without it");
    return;
  }
  lt->set_path(info.dli_fname);
  // 130100 is 13.1.0.
  const size_t version = reinterpret_cast<size_t (*)()>(symbol)();
  lt->set_version(absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100));
}

absl::Status AddNccl(v1::MachineReport* report) {
  v1::MachineReport::Library* const nccl = report->add_library();
  nccl->set_name("NCCL");
  const absl::StatusOr<const NcclLibrary*> library = NcclLibrary::Load();
  if (library.ok()) {
    nccl->set_path((*library)->path());
    nccl->set_version((*library)->VersionText());
  } else {
    nccl->set_why_not(std::string(library.status().message()));
  }
  return library.status();
}

// Returns the reason why a process cannot listen at a Unix-domain socket here; "" if it can.
std::string WhyNoUnixSockets() {
  const absl::StatusOr<std::string> path = NewUnixSocketPath();
  if (!path.ok()) return std::string(path.status().message());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path->size() >= sizeof(address.sun_path)) return absl::StrCat(*path, " is too long for a socket");
  std::memcpy(address.sun_path, path->data(), path->size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string why;
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || ::listen(fd, 1) != 0) {
    why = absl::StrCat(*path, ": ", std::strerror(errno));
  }
  if (fd >= 0) ::close(fd);
  ::unlink(path->c_str());
  return why;
}

int64_t Limit(rlim_t value) { return value == RLIM_INFINITY ? -1 : static_cast<int64_t>(value); }

void AddLimits(const std::string& root, v1::MachineReport::Limits* limits) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limits->set_open_files(Limit(limit.rlim_cur));
    limits->set_most_open_files(Limit(limit.rlim_max));
  }
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0) limits->set_processes(Limit(limit.rlim_cur));
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) limits->set_locked_memory_bytes(Limit(limit.rlim_cur));
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    limits->set_shared_memory_bytes(static_cast<int64_t>(shm.f_blocks * shm.f_frsize));
    limits->set_shared_memory_free_bytes(static_cast<int64_t>(shm.f_bavail * shm.f_frsize));
  }
  ReadPortRange(root, limits);
}

// ---------------------------------------------------------------------------------------------------------------- text

void AppendLibraries(const v1::MachineReport& report, std::string* text) {
  for (const v1::MachineReport::Library& library : report.library()) {
    absl::StrAppend(text, "  ", library.name(), " ",
                    library.has_why_not() ? absl::StrCat("no: ", library.why_not())
                                          : absl::StrCat(library.version(), "  ", library.path()),
                    "\n");
  }
}

void AppendCuda(const v1::MachineReport::Cuda& cuda, std::string* text) {
  absl::StrAppend(text, "CUDA devices\n");
  if (cuda.has_runtime() || cuda.has_driver()) {
    absl::StrAppend(text, "  runtime ", cuda.has_runtime() ? cuda.runtime() : "none", ", driver ",
                    cuda.has_driver() ? absl::StrCat("for CUDA ", cuda.driver()) : "none", "\n");
  }
  if (cuda.has_why_not()) absl::StrAppend(text, "  none: ", cuda.why_not(), "\n");
  for (const v1::MachineReport::Device& device : cuda.device()) {
    absl::StrAppend(text, "  ", device.number(), " ", device.name(), ", ", BytesText(device.memory_bytes()),
                    ", compute capability ", device.capability(), ", bus ", device.bus(), ", peers ",
                    device.peer().empty() ? "none" : absl::StrJoin(device.peer(), " "), "\n");
  }
}

void AppendProcessor(const v1::MachineReport::Processor& processor, std::string* text) {
  absl::StrAppend(text, "processor\n  cores ", processor.usable_cores(), " usable of ", processor.cores(), ", AVX2 ",
                  processor.avx2() ? "yes" : "no", ", AVX-512 ", processor.avx512() ? "yes" : "no",
                  ", train.arithmetic: AUTO is ", processor.arithmetic(), ", with precision: BF16 ",
                  processor.arithmetic_bf16().empty() ? "not possible" : processor.arithmetic_bf16(), "\n");
  for (const v1::MachineReport::NumaNode& node : processor.numa_node()) {
    absl::StrAppend(text, "  NUMA node ", node.number(), ": cores ", node.cores(), ", ", BytesText(node.memory_bytes()),
                    "\n");
  }
}

void AppendNetwork(const v1::MachineReport::Network& network, std::string* text) {
  absl::StrAppend(text, "network\n");
  for (const v1::MachineReport::Interface& interface : network.interface()) {
    absl::StrAppend(text, "  ", interface.name(), " ", interface.up() ? "" : "down ",
                    interface.address().empty() ? "no address" : absl::StrJoin(interface.address(), " "), "\n");
  }
  absl::StrAppend(text, "  address for others: ",
                  network.has_address() ? network.address() : absl::StrCat("none: ", network.why_not()), " (",
                  network.chosen_by(), ")\n  Unix-domain sockets: ",
                  network.has_no_unix_sockets() ? absl::StrCat("no: ", network.no_unix_sockets()) : "yes", "\n");
}

std::string CountText(int64_t count) { return count < 0 ? "no limit" : absl::StrCat(count); }

void AppendLimits(const v1::MachineReport::Limits& limits, std::string* text) {
  absl::StrAppend(text, "limits\n  open files ", CountText(limits.open_files()), " (up to ",
                  CountText(limits.most_open_files()), "), processes ", CountText(limits.processes()),
                  ", locked memory ", BytesText(limits.locked_memory_bytes()), "\n  /dev/shm ",
                  BytesText(limits.shared_memory_bytes()), ", free ", BytesText(limits.shared_memory_free_bytes()),
                  "\n");
  if (limits.has_first_local_port()) {
    absl::StrAppend(text, "  ports of connections ", limits.first_local_port(), " to ", limits.last_local_port(),
                    ": listen outside them\n");
  }
}

}  // namespace

std::string BytesText(int64_t bytes) {
  if (bytes < 0) return "no limit";
  if (bytes < (int64_t{1} << 20)) return absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / (1 << 10));
  if (bytes < (int64_t{1} << 30)) return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

std::vector<v1::MachineReport::NumaNode> NumaNodes(const std::string& root) {
  std::vector<v1::MachineReport::NumaNode> nodes;
  std::error_code error;
  for (fs::directory_iterator it(fs::path(root) / "sys/devices/system/node", error), end; it != end;
       it.increment(error)) {
    if (error) break;
    const std::string name = it->path().filename().string();
    int32_t number = 0;
    if (!absl::StartsWith(name, "node") || !absl::SimpleAtoi(name.substr(4), &number)) continue;
    v1::MachineReport::NumaNode node;
    node.set_number(number);
    node.set_cores(FirstLine(it->path() / "cpulist"));
    // Node 0 MemTotal:       16393244 kB
    const std::vector<std::string> words = absl::StrSplit(FirstLine(it->path() / "meminfo"), ' ', absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() >= 4 && words[2] == "MemTotal:" && absl::SimpleAtoi(words[3], &kib)) {
      node.set_memory_bytes(kib * 1024);
    }
    nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.number() < b.number(); });
  return nodes;
}

void ReadPortRange(const std::string& root, v1::MachineReport::Limits* limits) {
  const std::vector<std::string> words = absl::StrSplit(
      FirstLine(fs::path(root) / "proc/sys/net/ipv4/ip_local_port_range"), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  int32_t first = 0, last = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &first) || !absl::SimpleAtoi(words[1], &last)) return;
  limits->set_first_local_port(first);
  limits->set_last_local_port(last);
}

v1::MachineReport::Network ReportOnNetwork(const std::vector<NetworkInterface>& interfaces,
                                           const MachineOptions& options) {
  v1::MachineReport::Network network;
  for (const NetworkInterface& each : interfaces) {
    v1::MachineReport::Interface* const added = network.add_interface();
    added->set_name(each.name);
    added->set_up(each.up);
    for (const std::string& address : each.addresses) added->add_address(address);
  }
  const bool by_name = !options.interface.empty();
  network.set_chosen_by(by_name                   ? absl::StrCat("--interface=", options.interface)
                        : options.towards.empty() ? "the route to other networks; --towards=HOST:PORT, --interface=NAME"
                                                  : absl::StrCat("the route to ", options.towards));
  const absl::StatusOr<std::string> address =
      by_name ? AddressOfInterface(interfaces, options.interface)
              : LocalAddressTowards(options.towards.empty() ? kElsewhere : options.towards);
  if (address.ok()) {
    network.set_address(*address);
  } else {
    network.set_why_not(std::string(address.status().message()));
  }
  return network;
}

v1::MachineReport ReportOnMachine(const MachineOptions& options) {
  v1::MachineReport report;
  AddVersions(&report);
  AddProcessor(options.root, report.mutable_processor());
  const CudaMachine cuda = DescribeCudaMachine();
  AddCuda(cuda, report.mutable_cuda());
  AddCublas(&report);
  const absl::Status nccl = AddNccl(&report);
  const absl::StatusOr<std::vector<NetworkInterface>> interfaces = NetworkInterfaces();
  *report.mutable_network() = ReportOnNetwork(interfaces.ok() ? *interfaces : std::vector<NetworkInterface>(), options);
  if (const std::string why = WhyNoUnixSockets(); !why.empty()) report.mutable_network()->set_no_unix_sockets(why);
  for (const CollectiveBackend& backend : CollectiveBackends(nccl, cuda.usable)) {
    v1::MachineReport::Backend* const added = report.add_backend();
    added->set_name(backend.name);
    added->set_usable(backend.usable.ok());
    if (!backend.usable.ok()) added->set_why_not(std::string(backend.usable.message()));
  }
  AddLimits(options.root, report.mutable_limits());
  return report;
}

std::string MachineText(const v1::MachineReport& report) {
  std::string text = "versions\n ";
  for (const v1::MachineReport::Version& version : report.version()) {
    absl::StrAppend(&text, " ", version.name(), " ", version.version(), ",");
  }
  text.back() = '\n';
  AppendProcessor(report.processor(), &text);
  AppendCuda(report.cuda(), &text);
  absl::StrAppend(&text, "libraries loaded at run time\n");
  AppendLibraries(report, &text);
  AppendNetwork(report.network(), &text);
  absl::StrAppend(&text, "comm.backend\n");
  for (const v1::MachineReport::Backend& backend : report.backend()) {
    absl::StrAppend(&text, "  ", backend.name(), " ",
                    backend.usable() ? "usable" : absl::StrCat("no: ", backend.why_not()), "\n");
  }
  AppendLimits(report.limits(), &text);
  return text;
}

absl::StatusOr<std::string> ReportJson(const google::protobuf::Message& report) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(report, &text, options);
  if (!printed.ok()) return absl::InternalError(std::string(printed.message()));
  return text;
}

}  // namespace weir
