// Compares what `--print=explain` says that trainers send each other with the bytes that the kernel counts on the
// loop-back interface, for both backends. The test runs in a network namespace of its own, so that nothing else is
// counted; servers are in the process and send nothing.

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "gtest/gtest.h"
#include "pserver/collective/gloo_mesh.h"
#include "pserver/collective/wire_mesh.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_transport.h"
#include "tests/testing/board.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/explain/explain.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

constexpr char kHost[] = "127.0.0.1";
constexpr absl::Duration kConnectDeadline = absl::Seconds(60);
constexpr int64_t kSteps = 4;

// Moves this thread, and those that it starts, into a network namespace with a loop-back interface alone. Returns the
// reason if that is not allowed here, else "".
std::string EnterNamespace() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return absl::StrCat("network namespaces are not allowed here: ", std::strerror(errno));
  }
  const int any = socket(AF_INET, SOCK_DGRAM, 0);
  if (any < 0) return absl::StrCat("no socket: ", std::strerror(errno));
  ifreq request = {};
  std::strncpy(request.ifr_name, "lo", sizeof(request.ifr_name) - 1);
  request.ifr_flags = IFF_UP;
  const bool up = ioctl(any, SIOCSIFFLAGS, &request) == 0;
  close(any);
  return up ? "" : absl::StrCat("the loop-back interface cannot be used: ", std::strerror(errno));
}

// Returns the bytes that the loop-back interface of this thread's namespace has sent.
double LoopBackBytes() {
  std::ifstream in("/proc/thread-self/net/dev");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo") > colon) continue;
    std::istringstream numbers(line.substr(colon + 1));
    double number = 0;
    // Eight numbers of what was received come first.
    for (int i = 0; i < 9; ++i) numbers >> number;
    return number;
  }
  return NAN;
}

std::string NameOf(int rank) { return absl::StrCat("trainer ", rank); }

// A rank's mesh over TCP, and what it needs to stay alive.
struct Seat {
  std::unique_ptr<WireInbox> inbox;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Mesh> mesh;
};

absl::Status ConnectWire(int rank, RankBoard* board, Seat* seat) {
  seat->inbox = std::make_unique<WireInbox>();
  GrpcServerOptions server;
  server.endpoint = absl::StrCat(kHost, ":0");
  server.deliver = [inbox = seat->inbox.get()](const Slices& message, ReplyCallback reply) {
    inbox->HandleDeliver(message, std::move(reply));
  };
  ASSIGN_OR_RETURN(seat->server, GrpcServer::Start(server));
  GrpcTransportOptions transport{.unix_sockets = false};
  ASSIGN_OR_RETURN(transport.endpoints, board->Exchange("endpoints", rank, seat->server->endpoint(), kConnectDeadline));
  ASSIGN_OR_RETURN(seat->transport, MakeGrpcTransport(std::move(transport)));
  ASSIGN_OR_RETURN(seat->mesh, WireMesh::Connect({.group = 1,
                                                  .rank = rank,
                                                  .transport = seat->transport.get(),
                                                  .inbox = seat->inbox.get(),
                                                  .describe = NameOf},
                                                 {.deadline = kConnectDeadline}));
  return absl::OkStatus();
}

absl::Status ConnectGloo(int rank, int ranks, RankBoard* board, Seat* seat) {
  ASSIGN_OR_RETURN(seat->mesh, ConnectGlooMesh({.group = 1,
                                                .rank = rank,
                                                .size = ranks,
                                                .host = kHost,
                                                .exchange =
                                                    [=](const std::string& key, const std::string& mine) {
                                                      return board->Exchange(key, rank, mine, kConnectDeadline);
                                                    },
                                                .describe = NameOf,
                                                .connect_deadline = kConnectDeadline}));
  return absl::OkStatus();
}

struct Case {
  const char* backend;
  int trainers, lanes;
};

class KernelBytesTest : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    not_here_ = new std::string(EnterNamespace());
    dir_ = new std::string(::testing::TempDir() + "/kernel_bytes");
    std::filesystem::create_directories(*dir_);
    WriteClickData(*dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(*dir_); }

  // A tower of 5 MB, so that what is put around messages counts little.
  static std::vector<std::string> Overrides(const Case& c, int64_t steps) {
    return {"distribute.dense=ALL_REDUCE", absl::StrCat("train.lanes=", c.lanes),
            absl::StrCat("train.max_steps=", steps), "train.digest_every_steps=0",
            "model.layer[4].mlp={input: \"input\" sizes: [1024, 1024] activation: RELU}"};
  }

  // Returns the bytes that all trainers send each other in a step and in a comparison of their replicas.
  static std::pair<double, double> Predicted(const Case& c) {
    std::vector<std::string> overrides = Overrides(c, kSteps);
    overrides.push_back(absl::StrCat("distribute.trainers=", c.trainers));
    overrides.push_back(absl::StrCat("comm.backend=", c.backend));
    const auto job = ParseJob(kClickJob, *dir_ + "/job.textproto", overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    const auto explainer = Explainer::Create(*job);
    EXPECT_TRUE(explainer.ok()) << explainer.status();
    const auto e = (*explainer)->Finish();
    EXPECT_TRUE(e.ok()) << e.status();
    double step = 0, check = 0;
    for (const v1::ExplainedTrainer& trainer : e->trainer()) {
      step += trainer.count() * trainer.exchange().total().bytes_out();
      check += trainer.count() * trainer.exchange().check().bytes_out();
    }
    return {step, check};
  }

  static double Counted(const Case& c) {
    RankBoard board(c.trainers);
    std::vector<Seat> seats(static_cast<size_t>(c.trainers));
    const bool wire = std::string(c.backend) == "WIRE";
    const double before = LoopBackBytes();
    const auto result = TrainInProcess({.job_text = kClickJob,
                                        .directory = *dir_,
                                        .overrides = Overrides(c, kSteps),
                                        .servers = 1,
                                        .trainers = c.trainers,
                                        .mesh = [&](int t) -> absl::StatusOr<Mesh*> {
                                          Seat* const seat = &seats[static_cast<size_t>(t)];
                                          RETURN_IF_ERROR(wire ? ConnectWire(t, &board, seat)
                                                               : ConnectGloo(t, c.trainers, &board, seat));
                                          return seat->mesh.get();
                                        }});
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) {
      EXPECT_EQ(result->summary.steps, kSteps);
    }
    const double after = LoopBackBytes();
    for (Seat& seat : seats) {
      if (seat.server != nullptr) seat.server->Shutdown(absl::Seconds(1));
      seat.mesh = nullptr;
    }
    return after - before;
  }

  static std::string* not_here_;
  static std::string* dir_;
};
std::string* KernelBytesTest::not_here_ = nullptr;
std::string* KernelBytesTest::dir_ = nullptr;

TEST_P(KernelBytesTest, AreWhatExplainSays) {
  if (!not_here_->empty()) GTEST_SKIP() << *not_here_;
  const Case& c = GetParam();
  const auto [step, check] = Predicted(c);
  const double predicted = kSteps * step + check;
  // Others on the machine make it acknowledge more often: the run with the fewest bytes has the least of that.
  double counted = Counted(c);
  for (int i = 0; i < 4 && counted > 1.02 * predicted; ++i) counted = std::min(counted, Counted(c));
  std::printf("%s, %d trainers, %d lanes: %.0f predicted, %.0f counted, %+.2f %%\n", c.backend, c.trainers, c.lanes,
              predicted, counted, 100 * (counted / predicted - 1));
  EXPECT_NEAR(counted, predicted, 0.02 * predicted);
  // The kernel counts headers of TCP as well.
  EXPECT_GT(counted, predicted);
}

INSTANTIATE_TEST_SUITE_P(Backends, KernelBytesTest,
                         ::testing::Values(Case{"WIRE", 2, 8}, Case{"WIRE", 3, 8}, Case{"WIRE", 4, 8},
                                           Case{"WIRE", 5, 64}, Case{"WIRE", 6, 8}, Case{"WIRE", 7, 64},
                                           Case{"WIRE", 8, 8}, Case{"GLOO", 2, 8}, Case{"GLOO", 3, 8},
                                           Case{"GLOO", 4, 8}, Case{"GLOO", 5, 64}, Case{"GLOO", 6, 8},
                                           Case{"GLOO", 7, 64}, Case{"GLOO", 8, 8}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return absl::StrCat(info.param.backend, info.param.trainers, "Trainers", info.param.lanes,
                                               "Lanes");
                         });

}  // namespace
}  // namespace weir
