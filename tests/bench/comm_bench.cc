// Collective operations among real processes on this machine. Every result is checked before its time counts. Prints
// for each operation and size the median time, and the bus bandwidth: the bytes that an optimal algorithm would send
// from each rank, divided by the time.
//
//   comm_bench --ranks=2                        all operations over both backends, TCP on the loop-back interface
//   comm_bench --ranks=4 --backend=WIRE --unix  through shared memory, as trainers of one machine
//   comm_bench --ranks=2 --peer                 all-reduce by turns with the ring of the library Gloo
//   comm_bench --operations=all_reduce,any_order
//   comm_bench --ranks=4 --unix --busy=1        beside one busy loop
//
// Both ends of a message share the cores of the machine, so figures are about processor time as much as about latency.

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/collective/collective.h"
#include "glog/logging.h"
#include "gloo/allreduce.h"
#include "gloo/math.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/store.h"
#include "gloo/transport/tcp/device.h"
#include "pserver/collective/gloo_mesh.h"
#include "pserver/collective/wire_mesh.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_transport.h"
#include "pserver/replica/compressed_sum.h"

ABSL_FLAG(int, ranks, 2, "processes");
ABSL_FLAG(std::string, backend, "WIRE,GLOO", "WIRE, GLOO or both");
ABSL_FLAG(bool, unix, false, "WIRE over shared memory and Unix-domain sockets");
ABSL_FLAG(std::vector<std::string>, bytes,
          std::vector<std::string>({"64", "1024", "4096", "16384", "65536", "262144", "1048576", "16777216"}), "sizes");
ABSL_FLAG(int, busy, 0, "processes beside the ranks that compute all the time");
ABSL_FLAG(int, repetitions, 20, "timed runs of each operation and size");
ABSL_FLAG(int64_t, message_bytes, 1 << 20, "most bytes of a message");
ABSL_FLAG(int, streams, 2, "operations that run at once");
ABSL_FLAG(bool, peer, false, "also runs Gloo's own ring, by turns");
ABSL_FLAG(std::vector<std::string>, operations, {}, "names of the operations to run; empty: all");

namespace weir {
namespace {

constexpr char kHost[] = "127.0.0.1";
constexpr absl::Duration kConnectDeadline = absl::Seconds(30);

// Gives the contributions of all ranks to all ranks, through the process that has started them.
class Exchange {
 public:
  explicit Exchange(int socket) : socket_(socket) {}

  absl::StatusOr<std::vector<std::string>> operator()(const std::string& mine, int ranks) {
    RETURN_IF_ERROR(Write(socket_, mine));
    std::vector<std::string> all(static_cast<size_t>(ranks));
    for (std::string& each : all) RETURN_IF_ERROR(Read(socket_, &each));
    return all;
  }

  static absl::Status Write(int socket, const std::string& text) {
    const auto size = static_cast<uint32_t>(text.size());
    RETURN_IF_ERROR(WriteAll(socket, &size, sizeof(size)));
    return WriteAll(socket, text.data(), text.size());
  }
  static absl::Status Read(int socket, std::string* text) {
    uint32_t size = 0;
    RETURN_IF_ERROR(ReadAll(socket, &size, sizeof(size)));
    text->resize(size);
    return ReadAll(socket, text->data(), size);
  }

 private:
  static absl::Status WriteAll(int socket, const void* data, size_t size) {
    const bool done = ::send(socket, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
    return done ? absl::OkStatus() : absl::UnavailableError("another process has ended");
  }
  static absl::Status ReadAll(int socket, void* data, size_t size) {
    const bool done = size == 0 || ::recv(socket, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
    return done ? absl::OkStatus() : absl::UnavailableError("another process has ended");
  }

  const int socket_;
};

std::string NameOf(int rank) { return absl::StrCat("rank ", rank); }

// A mesh, and what it needs to stay alive.
struct Backend {
  std::string name;
  std::unique_ptr<WireInbox> inbox;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Mesh> mesh;
};

absl::StatusOr<Backend> MakeWire(int rank, int ranks, Exchange* exchange) {
  const bool unix_sockets = absl::GetFlag(FLAGS_unix);
  Backend backend{.name = unix_sockets ? "WIRE unix" : "WIRE tcp", .inbox = std::make_unique<WireInbox>()};
  GrpcServerOptions server;
  server.endpoint = absl::StrCat(kHost, ":0");
  server.deliver = [inbox = backend.inbox.get()](const Slices& message, ReplyCallback reply) {
    inbox->HandleDeliver(message, std::move(reply));
  };
  ASSIGN_OR_RETURN(backend.server, GrpcServer::Start(server));
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   (*exchange)(absl::StrCat(backend.server->endpoint(), " ", backend.server->unix_socket()), ranks));
  GrpcTransportOptions transport{.unix_sockets = unix_sockets};
  for (const std::string& each : all) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(each, ' ');
    transport.endpoints.push_back(parts.first);
    transport.sockets.push_back(parts.second);
  }
  ASSIGN_OR_RETURN(backend.transport, MakeGrpcTransport(std::move(transport)));
  ASSIGN_OR_RETURN(backend.mesh, WireMesh::Connect({.group = 1,
                                                    .rank = rank,
                                                    .transport = backend.transport.get(),
                                                    .inbox = backend.inbox.get(),
                                                    .describe = NameOf},
                                                   {.deadline = kConnectDeadline}));
  return backend;
}

absl::StatusOr<Backend> MakeGloo(int rank, int ranks, Exchange* exchange) {
  Backend backend{.name = "GLOO tcp"};
  ASSIGN_OR_RETURN(backend.mesh,
                   ConnectGlooMesh({.rank = rank,
                                    .size = ranks,
                                    .host = kHost,
                                    .exchange = [=](const std::string&,
                                                    const std::string& mine) { return (*exchange)(mine, ranks); },
                                    .describe = NameOf,
                                    .connect_deadline = kConnectDeadline}));
  return backend;
}

// Gloo's own all-reduce, as it is.
class Ring {
 public:
  Ring(int rank, int ranks, Exchange* exchange)
      : store_(exchange, ranks), context_(std::make_shared<gloo::rendezvous::Context>(rank, ranks)) {
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(kHost));
    context_->connectFullMesh(store_, device);
  }

  void AllReduce(std::vector<float>* values) {
    gloo::AllreduceOptions options(context_);
    options.setTag(tag_++);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(values->data(), values->size());
    options.setReduceFunction(
        [](void* out, const void* a, const void* b, size_t n) { gloo::sum<float>(out, a, b, n); });
    gloo::allreduce(options);
  }

 private:
  class Store : public gloo::rendezvous::Store {
   public:
    Store(Exchange* exchange, int ranks) : exchange_(*exchange), ranks_(ranks) {}
    void set(const std::string&, const std::vector<char>& data) override {
      auto all = exchange_(std::string(data.begin(), data.end()), ranks_);
      CHECK(all.ok()) << all.status();
      all_ = *std::move(all);
    }
    std::vector<char> get(const std::string& key) override {
      // The key ends with the rank.
      const std::string& value = all_[std::stoul(key.substr(key.find_last_not_of("0123456789") + 1))];
      return std::vector<char>(value.begin(), value.end());
    }
    void wait(const std::vector<std::string>&) override {}

   private:
    Exchange& exchange_;
    const int ranks_;
    std::vector<std::string> all_;
  };
  Store store_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  uint32_t tag_ = 1;
};

using Begins = std::vector<int64_t>;

// One operation on `count` floats. Values of rank r are r + 1 + i % 8 before, so that sums are exact.
struct Case {
  const char* name;
  bool reduces_all;  // like Gloo's ring
  // Bytes that each rank must send, as a part of the bytes of the operation.
  std::function<double(int ranks)> bus;
  std::function<absl::Status(Collective*, std::vector<float>*)> run;
  // Expected value of element i on a rank. begins: borders of even slices.
  std::function<float(int rank, const Begins& begins, int64_t i)> expected;
};

float Value(int rank, int64_t i) { return static_cast<float>(rank + 1 + i % 8); }
float SumOfAll(const Begins& begins, int64_t i) {
  const int ranks = static_cast<int>(begins.size()) - 1;
  const int sum = ranks * (ranks + 1) / 2 + ranks * static_cast<int>(i % 8);
  return static_cast<float>(sum);
}

Begins EvenBegins(int64_t count, int ranks) {
  Begins begins;
  for (int r = 0; r <= ranks; ++r) begins.push_back(count * r / ranks);
  return begins;
}

int OwnerOf(const Begins& begins, int64_t i) {
  return static_cast<int>(std::upper_bound(begins.begin(), begins.end(), i) - begins.begin()) - 1;
}

// Gathers the slices of all ranks as bytes, and puts those that have come into their places.
absl::Status Gather(
    Collective* c, std::vector<float>* v,
    const std::function<Collective::PendingPtr(std::string mine, std::vector<std::string>* all)>& gather) {
  const Begins begins = EvenBegins(static_cast<int64_t>(v->size()), c->size());
  const auto rank = static_cast<size_t>(c->rank());
  std::vector<std::string> all;
  RETURN_IF_ERROR(gather(std::string(reinterpret_cast<const char*>(v->data() + begins[rank]),
                                     static_cast<size_t>(begins[rank + 1] - begins[rank]) * sizeof(float)),
                         &all)
                      ->Wait());
  for (size_t r = 0; r < all.size(); ++r) std::memcpy(v->data() + begins[r], all[r].data(), all[r].size());
  return absl::OkStatus();
}

// Adds the values as BFLOAT16, with error feedback.
absl::Status AllReduce16Bits(Collective* c, std::vector<float>* v) {
  const auto count = static_cast<int64_t>(v->size());
  static CompressedSum* sum = nullptr;
  static int64_t of_count = -1;
  if (of_count != count) {
    delete sum;
    sum = new CompressedSum(v1::BFLOAT16, {{"v", count}}, nullptr);
    of_count = count;
  }
  void* const packed = sum->Pack({v->data()});
  Collective::Values values{
      .name = "v", .dtype = v1::BFLOAT16, .shape = {count}, .addends = c->Own(packed), .lost = sum->lost()};
  RETURN_IF_ERROR(c->AllReduce(std::move(values), packed)->Wait());
  if (!sum->Unpack([](size_t) { return true; }, v->data())) return absl::InternalError("a sum is not finite");
  sum->Keep();
  return absl::OkStatus();
}

std::vector<Case> Cases() {
  const auto shape = [](const std::vector<float>& v) { return std::vector<int64_t>{static_cast<int64_t>(v.size())}; };
  const auto values = [shape](Collective* c, std::vector<float>* v) {
    return Collective::Values{.name = "v", .shape = shape(*v), .addends = c->Own(v->data())};
  };
  const auto part = [](int ranks) { return static_cast<double>(ranks - 1) / ranks; };
  const auto twice = [part](int ranks) { return 2 * part(ranks); };
  const auto sum = [](int, const Begins& begins, int64_t i) { return SumOfAll(begins, i); };
  return {
      {"all_reduce", true, twice,
       [values](Collective* c, std::vector<float>* v) { return c->AllReduce(values(c, v), v->data())->Wait(); }, sum},
      {"any_order", true, twice,
       [values](Collective* c, std::vector<float>* v) {
         Collective::Values any = values(c, v);
         any.any_order = true;
         return c->AllReduce(std::move(any), v->data())->Wait();
       },
       sum},
      // Sums are below 256, so that BFLOAT16 has them; the time is with the conversions.
      {"16 bits", true, [part](int n) { return part(n); }, AllReduce16Bits, sum},
      // All ranks but 0 give zeros, of which the adasum is what rank 0 has.
      {"adasum", true, twice,
       [values](Collective* c, std::vector<float>* v) {
         if (c->rank() > 0) std::fill(v->begin(), v->end(), 0.0F);
         Collective::Values means = values(c, v);
         means.reduction = Reduction::kAdasum;
         return c->AllReduce(std::move(means), v->data())->Wait();
       },
       [](int, const Begins&, int64_t i) { return Value(0, i); }},
      {"reduce", false, part,
       [values](Collective* c, std::vector<float>* v) { return c->Reduce(values(c, v), 0, v->data())->Wait(); },
       [](int rank, const Begins& begins, int64_t i) { return rank == 0 ? SumOfAll(begins, i) : Value(rank, i); }},
      {"reduce_scatter", false, part,
       [values](Collective* c, std::vector<float>* v) {
         const Begins begins = EvenBegins(static_cast<int64_t>(v->size()), c->size());
         return c->ReduceScatter(values(c, v), begins, v->data() + begins[static_cast<size_t>(c->rank())])->Wait();
       },
       [](int rank, const Begins& begins, int64_t i) {
         return OwnerOf(begins, i) == rank ? SumOfAll(begins, i) : Value(rank, i);
       }},
      {"all_gather", false, part,
       [](Collective* c, std::vector<float>* v) {
         const Begins begins = EvenBegins(static_cast<int64_t>(v->size()), c->size());
         return c->AllGather("v", v1::FLOAT32, begins, v->data())->Wait();
       },
       [](int, const Begins& begins, int64_t i) { return Value(OwnerOf(begins, i), i); }},
      {"broadcast", false, [](int) { return 1.0; },
       [shape](Collective* c, std::vector<float>* v) {
         return c->Broadcast("v", v1::FLOAT32, shape(*v), c->size() - 1, v->data())->Wait();
       },
       [](int, const Begins& begins, int64_t i) { return Value(static_cast<int>(begins.size()) - 2, i); }},
      {"all_to_all", false, part,
       [](Collective* c, std::vector<float>* v) -> absl::Status {
         const Begins begins = EvenBegins(static_cast<int64_t>(v->size()), c->size());
         std::vector<std::string> to, from;
         for (size_t r = 0; r + 1 < begins.size(); ++r) {
           to.emplace_back(reinterpret_cast<const char*>(v->data() + begins[r]),
                           static_cast<size_t>(begins[r + 1] - begins[r]) * sizeof(float));
         }
         RETURN_IF_ERROR(c->AllToAllBytes("v", std::move(to), &from)->Wait());
         // Piece r of the result is what rank r has sent; pieces may differ by an element, which stays as it was.
         for (size_t r = 0; r < from.size(); ++r) {
           const size_t room = static_cast<size_t>(begins[r + 1] - begins[r]) * sizeof(float);
           std::memcpy(v->data() + begins[r], from[r].data(), std::min(room, from[r].size()));
         }
         return absl::OkStatus();
       },
       [](int rank, const Begins& begins, int64_t i) {
         const int sender = OwnerOf(begins, i);
         const int64_t at = begins[static_cast<size_t>(rank)] + i - begins[static_cast<size_t>(sender)];
         return at < begins[static_cast<size_t>(rank) + 1] ? Value(sender, at) : Value(rank, i);
       }},
      {"all_gather bytes", false, part,
       [](Collective* c, std::vector<float>* v) {
         return Gather(c, v, [c](std::string mine, std::vector<std::string>* all) {
           return c->AllGatherBytes("v", std::move(mine), all);
         });
       },
       [](int, const Begins& begins, int64_t i) { return Value(OwnerOf(begins, i), i); }},
      {"gather bytes", false, part,
       [](Collective* c, std::vector<float>* v) {
         return Gather(c, v, [c](std::string mine, std::vector<std::string>* all) {
           return c->GatherBytes("v", std::move(mine), 0, all);
         });
       },
       [](int rank, const Begins& begins, int64_t i) { return Value(rank == 0 ? OwnerOf(begins, i) : rank, i); }},
      {"barrier", false, [](int) { return 0.0; },
       [](Collective* c, std::vector<float>*) { return c->Barrier("b")->Wait(); },
       [](int rank, const Begins&, int64_t i) { return Value(rank, i); }},
  };
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Seconds(absl::Time since) { return absl::ToDoubleSeconds(Clock::Real()->Now() - since); }

void Fill(int rank, std::vector<float>* values) {
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] = Value(rank, static_cast<int64_t>(i));
}

absl::Status Check(const Case& of, int rank, int ranks, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  const Begins begins = EvenBegins(count, ranks);
  for (int64_t i = 0; i < count; ++i) {
    const float expected = of.expected(rank, begins, i);
    if (values[static_cast<size_t>(i)] == expected) continue;
    return absl::InternalError(absl::StrCat(of.name, ": element ", i, " of ", count, " on rank ", rank, " is ",
                                            values[static_cast<size_t>(i)], ", expected ", expected));
  }
  return absl::OkStatus();
}

absl::Status RunCases(const Backend& backend, int rank, int ranks, Ring* ring) {
  Collective collective(backend.mesh.get(),
                        {.streams = absl::GetFlag(FLAGS_streams), .message_bytes = absl::GetFlag(FLAGS_message_bytes)});
  const int repetitions = absl::GetFlag(FLAGS_repetitions);
  const std::vector<std::string> wanted = absl::GetFlag(FLAGS_operations);
  for (const Case& each : Cases()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), each.name) == wanted.end()) continue;
    const bool sized = std::strcmp(each.name, "barrier") != 0;
    const std::vector<std::string> sizes = absl::GetFlag(FLAGS_bytes);
    for (const std::string& text : sized ? sizes : std::vector<std::string>({"0"})) {
      const int64_t bytes = std::atoll(text.c_str());
      std::vector<float> values(static_cast<size_t>(bytes) / sizeof(float));
      std::vector<double> times, ring_times;
      const bool with_ring = ring != nullptr && each.reduces_all;
      for (int i = 0; i < repetitions; ++i) {
        Fill(rank, &values);
        RETURN_IF_ERROR(collective.Barrier("begin")->Wait());
        const absl::Time begin = Clock::Real()->Now();
        RETURN_IF_ERROR(each.run(&collective, &values));
        times.push_back(Seconds(begin));
        RETURN_IF_ERROR(Check(each, rank, ranks, values));
        if (!with_ring) continue;
        Fill(rank, &values);
        RETURN_IF_ERROR(collective.Barrier("ring")->Wait());
        const absl::Time ring_begin = Clock::Real()->Now();
        ring->AllReduce(&values);
        ring_times.push_back(Seconds(ring_begin));
        RETURN_IF_ERROR(Check(Cases().front(), rank, ranks, values));
      }
      if (rank != 0) continue;
      const double seconds = Median(times);
      std::printf("%-9s %-16s %9lld bytes  %9.3f ms  %6.2f GB/s", backend.name.c_str(), each.name,
                  static_cast<long long>(bytes), seconds * 1e3,
                  each.bus(ranks) * static_cast<double>(bytes) / seconds / 1e9);
      if (with_ring)
        std::printf("  Gloo's ring %9.3f ms, ratio %.2f", Median(ring_times) * 1e3, Median(ring_times) / seconds);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

absl::Status RunRank(int rank, int ranks, int socket) {
  Exchange exchange(socket);
  std::unique_ptr<Ring> ring;
  if (absl::GetFlag(FLAGS_peer)) ring = std::make_unique<Ring>(rank, ranks, &exchange);
  const std::vector<std::string> wanted = absl::StrSplit(absl::GetFlag(FLAGS_backend), ',');
  for (const std::string& name : wanted) {
    absl::StatusOr<Backend> backend = absl::InvalidArgumentError(absl::StrCat("--backend: no backend ", name));
    if (name == "WIRE") backend = MakeWire(rank, ranks, &exchange);
    if (name == "GLOO") backend = MakeGloo(rank, ranks, &exchange);
    RETURN_IF_ERROR(backend.status());
    RETURN_IF_ERROR(RunCases(*backend, rank, ranks, ring.get()));
    RETURN_IF_ERROR(exchange("done", ranks).status());
    if (backend->server != nullptr) backend->server->Shutdown(absl::Seconds(1));
  }
  return absl::OkStatus();
}

// Starts processes that compute until they are killed, or this one ends.
std::vector<pid_t> StartBusyLoops(int count) {
  std::vector<pid_t> loops;
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    CHECK_GE(child, 0);
    if (child != 0) {
      loops.push_back(child);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t turns = 0;;) turns = turns + 1;
  }
  return loops;
}

void End(const std::vector<pid_t>& loops) {
  for (const pid_t loop : loops) {
    ::kill(loop, SIGKILL);
    ::waitpid(loop, nullptr, 0);
  }
}

// Starts the ranks and serves their exchanges until they end. Returns the exit code.
int Main() {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  double load = 0;
  (void)::getloadavg(&load, 1);
  std::printf("%d ranks on %ld processors beside %d busy loops, load before %.1f\n", ranks,
              ::sysconf(_SC_NPROCESSORS_ONLN), absl::GetFlag(FLAGS_busy), load);
  std::fflush(stdout);
  const std::vector<pid_t> loops = StartBusyLoops(absl::GetFlag(FLAGS_busy));
  std::vector<int> sockets;
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    int pair[2];
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const pid_t child = ::fork();
    CHECK_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(pair[0]);
      for (const int socket : sockets) ::close(socket);
      const absl::Status status = RunRank(r, ranks, pair[1]);
      if (!status.ok()) std::fprintf(stderr, "comm_bench: rank %d: %s\n", r, status.ToString().c_str());
      std::fflush(nullptr);
      ::_exit(status.ok() ? 0 : 1);
    }
    ::close(pair[1]);
    sockets.push_back(pair[0]);
    children.push_back(child);
  }
  while (true) {
    std::vector<std::string> all(sockets.size());
    bool ended = false;
    for (size_t r = 0; r < sockets.size(); ++r) ended |= !Exchange::Read(sockets[r], &all[r]).ok();
    if (ended) break;
    for (const int socket : sockets) {
      for (const std::string& each : all) (void)Exchange::Write(socket, each);
    }
  }
  for (const int socket : sockets) ::close(socket);
  int code = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) code = 1;
  }
  End(loops);
  return code;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return weir::Main();
}
