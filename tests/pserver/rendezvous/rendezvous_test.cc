// Whole meetings in one process: a thread for each process of the job, real sockets and files.
#include "pserver/rendezvous/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/rendezvous/file_board.h"
#include "pserver/rendezvous/gathering.h"
#include "pserver/rendezvous/meeting_frame.h"
#include "pserver/rendezvous/tcp_sockets.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A port of 127.0.0.1 that is free with `more` ports behind it; below those of connections.
int FreePort(int more = 0) {
  static int next = 12000 + getpid() % 15000;
  for (int tries = 0; tries < 5000; ++tries) {
    const int port = next;
    next += more + 1;
    if (next > 30000) next = 12000;
    bool free = true;
    for (int i = 0; i <= more && free; ++i) {
      int got = 0;
      InitMethod method;
      method.address = {.host = "127.0.0.1", .port = port + i};
      free = ListenAt(method, &got).ok();
    }
    if (free) return port;
  }
  ADD_FAILURE() << "no free port";
  return 0;
}

InitMethod Tcp(int port, int ports = 1) {
  InitMethod method;
  method.address = {.host = "127.0.0.1", .port = port};
  method.ports = ports;
  method.source = absl::StrCat("--init_method=tcp://127.0.0.1:", port);
  return method;
}

std::string NewDirectory() {
  const char* const base = std::getenv("TEST_TMPDIR");
  const auto made = CreateUniqueDirectory(base == nullptr ? "/tmp" : base, "meet");
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

InitMethod Files(const std::string& directory) {
  InitMethod method;
  method.kind = InitMethod::Kind::kFile;
  method.directory = directory;
  method.source = "--init_method=file://" + directory;
  return method;
}

RendezvousOptions Trainer(const InitMethod& method, int id, int trainers) {
  return {.method = method,
          .job_name = "job",
          .run_id = "run",
          .id = id,
          .trainers = trainers,
          .endpoint = absl::StrCat("127.0.0.1:", 100 + id),
          .process = absl::StrCat("host:", id),
          .slow_warning = absl::Milliseconds(200),
          .connect_deadline = absl::Seconds(20),
          .lease = absl::Seconds(2)};
}

// One process of the job, on a thread.
class Process {
 public:
  explicit Process(RendezvousOptions options)
      : thread_([this, options = std::move(options)] {
          absl::StatusOr<Addresses> met = Meet(options, cancellation_);
          MutexLock lock(&mu_);
          met_ = std::move(met);
          ended_.SignalAll();
        }) {}
  ~Process() {
    cancellation_.Cancel();
    thread_.join();
  }

  // Returns whether it ends within the limit.
  bool EndsWithin(absl::Duration limit) {
    const absl::Time until = Clock::Real()->Now() + limit;
    MutexLock lock(&mu_);
    while (!met_.has_value() && Clock::Real()->Now() < until) {
      ended_.WaitWithTimeout(&mu_, until - Clock::Real()->Now());
    }
    return met_.has_value();
  }
  absl::StatusOr<Addresses> Result() {
    if (!EndsWithin(absl::Seconds(40))) return absl::InternalError("it has not ended within 40 s");
    MutexLock lock(&mu_);
    return *met_;
  }
  std::vector<std::string> Trainers() {
    const auto result = Result();
    return result.ok() ? result->trainers : std::vector<std::string>{std::string(result.status().message())};
  }
  std::string Error() { return std::string(Result().status().message()); }
  void Cancel() { cancellation_.Cancel(); }

 private:
  Cancellation cancellation_;
  Mutex mu_;
  CondVar ended_;
  std::optional<absl::StatusOr<Addresses>> met_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};
using ProcessPtr = std::unique_ptr<Process>;

ProcessPtr Start(RendezvousOptions options) {
  // The first line of a log reads the time zone, under a lock of libc that ThreadSanitizer does not see.
  static const bool logged = [] {
    LOG(INFO) << "processes start";
    return true;
  }();
  (void)logged;
  return std::make_unique<Process>(std::move(options));
}

// One end of a connection, which says and hears what the test wants.
class Line {
 public:
  explicit Line(Socket socket) : socket_(std::move(socket)) {
    const timeval limit = {.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::fcntl(socket_.fd(), F_SETFL, ::fcntl(socket_.fd(), F_GETFL) & ~O_NONBLOCK);
  }
  // Connects as soon as somebody listens, within 20 s.
  static Line To(int port) {
    const Cancellation never;
    const absl::Time until = Clock::Real()->Now() + absl::Seconds(20);
    const auto addresses = Resolve("127.0.0.1", port);
    while (addresses.ok() && Clock::Real()->Now() < until) {
      auto socket = ConnectTo(addresses->front(), absl::Seconds(1), never);
      if (socket.ok()) return Line(*std::move(socket));
    }
    ADD_FAILURE() << "nobody listens at " << port;
    return Line(Socket());
  }

  void Say(const std::string& bytes) { (void)!::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void Say(const google::protobuf::MessageLite& message) { Say(EncodeMeetingFrame(message)); }
  // Returns the next message; nothing if the connection ends before, or within 10 s.
  template <typename Message>
  std::optional<Message> Hear() {
    while (true) {
      const auto text = frames_.Next();
      Message message;
      if (!text.ok()) return std::nullopt;
      if (text->has_value() && message.ParseFromString(**text)) return message;
      char bytes[4096];
      const ssize_t got = ::recv(socket_.fd(), bytes, sizeof bytes, 0);
      if (got <= 0) return std::nullopt;
      frames_.Append(std::string_view(bytes, static_cast<size_t>(got)));
    }
  }
  std::string HearText() {
    const auto answer = Hear<v1::RendezvousAnswer>();
    if (!answer.has_value()) return "closed";
    return absl::StrCat(v1::RendezvousAnswer::State_Name(answer->state()), " ", answer->missing(),
                        answer->error().message());
  }
  // Returns the first answer that says more than who is missing.
  std::string HearLast() {
    std::string text = "WAITING";
    while (text.starts_with("WAITING")) text = HearText();
    return text;
  }

 private:
  Socket socket_;
  MeetingFrames frames_{kLargestAnswer};
};

// A listener that is no trainer 0, unless the test plays one.
class Listener {
 public:
  explicit Listener(int port) {
    int got = 0;
    absl::StatusOr<Socket> socket = ListenAt(Tcp(port), &got);
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (socket.ok()) socket_ = *std::move(socket);
  }
  Line Accept() {
    pollfd event = {.fd = socket_.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&event, 1, 20'000), 1) << "nobody connects";
    return Line(Socket(::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC)));
  }

 private:
  Socket socket_;
};

v1::RendezvousGreeting Greeting(int id, int trainers) {
  v1::RendezvousGreeting greeting;
  greeting.set_version(kRendezvousVersion);
  greeting.set_job_name("job");
  greeting.set_run_id("run");
  greeting.set_id(id);
  greeting.set_trainers(trainers);
  greeting.set_servers(0);
  greeting.set_endpoint(absl::StrCat("127.0.0.1:", 100 + id));
  greeting.set_process("by hand");
  greeting.set_incarnation(77);
  return greeting;
}

const std::vector<std::string>& Three() {
  static const auto* const all = new std::vector<std::string>{"127.0.0.1:100", "127.0.0.1:101", "127.0.0.1:102"};
  return *all;
}

// Both kinds of meeting point.
class MeetingTest : public ::testing::TestWithParam<bool> {
 protected:
  MeetingTest() : directory_(NewDirectory()), method_(GetParam() ? Files(directory_) : Tcp(FreePort())) {}

  const std::string directory_;
  const InitMethod method_;
};

TEST_P(MeetingTest, AllLearnAllAddresses) {
  std::vector<ProcessPtr> processes;
  for (const int id : {2, 0, 1}) processes.push_back(Start(Trainer(method_, id, 3)));
  for (const ProcessPtr& process : processes) {
    EXPECT_EQ(process->Trainers(), Three());
    const auto result = process->Result();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->servers, IsEmpty());
  }
  EXPECT_THAT(*ListDirectory(directory_), IsEmpty());
}

TEST_P(MeetingTest, OneTrainerMeetsItself) {
  EXPECT_THAT(Start(Trainer(method_, 0, 1))->Trainers(), ElementsAre("127.0.0.1:100"));
}

TEST_P(MeetingTest, ServersComeTooAndTrainersNeedNotListen) {
  std::vector<ProcessPtr> processes;
  for (const bool server : {true, false}) {
    for (const int id : {1, 0}) {
      RendezvousOptions options = Trainer(method_, id, 2);
      options.server = server;
      options.servers = 2;
      options.endpoint = server ? absl::StrCat("127.0.0.1:", 200 + id) : "";
      // Another launcher has started the servers.
      if (server) options.run_id = "";
      processes.push_back(Start(options));
    }
  }
  for (const ProcessPtr& process : processes) {
    const auto result = process->Result();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->servers, ElementsAre("127.0.0.1:200", "127.0.0.1:201"));
    EXPECT_THAT(result->trainers, IsEmpty());
  }
}

TEST_P(MeetingTest, ATrainerMayLearnTheNameOfTheRun) {
  RendezvousOptions other = Trainer(method_, 1, 2);
  other.run_id = "*";
  const ProcessPtr guest = Start(other), host = Start(Trainer(method_, 0, 2));
  for (const ProcessPtr* process : {&guest, &host}) {
    const auto result = (*process)->Result();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->run_id, "run");
  }
}

TEST_P(MeetingTest, TheMissingAreNamedToAllAtTheDeadline) {
  RendezvousOptions first = Trainer(method_, 0, 4), other = Trainer(method_, 2, 4);
  first.connect_deadline = absl::Seconds(3);
  const ProcessPtr host = Start(first), guest = Start(other);
  EXPECT_EQ(host->Result().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(host->Error(), AllOf(HasSubstr("waited for 3s (deadlines.connect_deadline_s)"),
                                   HasSubstr("for trainers 1 and 3; 2 of 4 are there")));
  EXPECT_EQ(guest->Result().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(guest->Error(), AllOf(HasSubstr("trainer 0 has ended the meeting"), HasSubstr("for trainers 1 and 3")));
}

TEST_P(MeetingTest, AMissingTrainer0IsNamed) {
  RendezvousOptions options = Trainer(method_, 1, 2);
  options.connect_deadline = absl::Seconds(1);
  const ProcessPtr guest = Start(options);
  EXPECT_EQ(guest->Result().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(guest->Error(), HasSubstr("for trainer 0"));
}

TEST_P(MeetingTest, ASignalEndsTheWaitAtOnce) {
  const ProcessPtr guest = Start(Trainer(method_, 1, 3));
  EXPECT_FALSE(guest->EndsWithin(absl::Milliseconds(300)));
  guest->Cancel();
  EXPECT_TRUE(guest->EndsWithin(absl::Seconds(5)));
  EXPECT_EQ(guest->Result().status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(guest->Error(), HasSubstr("ended by a signal"));
  const ProcessPtr host = Start(Trainer(method_, 0, 3));
  EXPECT_FALSE(host->EndsWithin(absl::Milliseconds(300)));
  host->Cancel();
  EXPECT_TRUE(host->EndsWithin(absl::Seconds(5)));
  EXPECT_EQ(host->Result().status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(*ListDirectory(directory_), IsEmpty());
}

TEST_P(MeetingTest, OneThatContradictsIsRefusedAndTheOthersMeet) {
  const ProcessPtr host = Start(Trainer(method_, 0, 3));
  RendezvousOptions wrong = Trainer(method_, 1, 4);
  wrong.process = "wrong:1";
  const ProcessPtr refused = Start(wrong);
  EXPECT_EQ(refused->Result().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused->Error(),
              AllOf(HasSubstr("refused"), HasSubstr("trainer 1 (wrong:1) says that there are 4 trainers, trainer 0 "
                                                    "(host:0) that there are 3")));
  wrong = Trainer(method_, 3, 3);
  EXPECT_THAT(Start(wrong)->Error(), HasSubstr("trainer 3 (host:3) comes, but there are 3: 0 to 2"));
  const ProcessPtr first = Start(Trainer(method_, 1, 3)), second = Start(Trainer(method_, 2, 3));
  for (const ProcessPtr* each : {&host, &first, &second}) EXPECT_EQ((*each)->Trainers(), Three());
}

TEST_P(MeetingTest, ASecondProcessOfAnIdIsRefused) {
  const ProcessPtr host = Start(Trainer(method_, 0, 3));
  RendezvousOptions one = Trainer(method_, 1, 3), two = one;
  two.process = "second:1";
  const ProcessPtr a = Start(one), b = Start(two);
  const absl::Time until = Clock::Real()->Now() + absl::Seconds(20);
  while (!a->EndsWithin(absl::Milliseconds(20)) && !b->EndsWithin(absl::Milliseconds(20))) {
    ASSERT_LT(Clock::Real()->Now(), until);
  }
  const bool a_refused = a->EndsWithin(absl::ZeroDuration());
  EXPECT_THAT((a_refused ? a : b)->Error(),
              AllOf(HasSubstr("trainer 1 (second:1)"), HasSubstr("trainer 1 (host:1)"), HasSubstr("is there already")));
  const ProcessPtr last = Start(Trainer(method_, 2, 3));
  EXPECT_EQ(host->Trainers(), Three());
  EXPECT_EQ((a_refused ? b : a)->Trainers(), Three());
}

TEST_P(MeetingTest, ALoopbackAddressBesideOthersEndsAll) {
  RendezvousOptions remote = Trainer(method_, 1, 2);
  remote.endpoint = "10.0.0.2:6170";
  const ProcessPtr host = Start(Trainer(method_, 0, 2)), guest = Start(remote);
  for (const ProcessPtr* each : {&host, &guest}) {
    EXPECT_EQ((*each)->Result().status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT((*each)->Error(),
                AllOf(HasSubstr("trainer 0 (host:0) is at 127.0.0.1:100, an address of its own machine alone"),
                      HasSubstr("trainer 1 (host:1) at 10.0.0.2:6170")));
  }
}

INSTANTIATE_TEST_SUITE_P(TcpAndFiles, MeetingTest, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "Files" : "Tcp"; });

TEST(TcpMeetingTest, AnotherRunIsRefusedAtOnce) {
  const InitMethod method = Tcp(FreePort());
  const ProcessPtr host = Start(Trainer(method, 0, 2));
  RendezvousOptions other = Trainer(method, 1, 2);
  other.run_id = "old";
  EXPECT_THAT(Start(other)->Error(), HasSubstr("trainer 1 (host:1) is of run 'old', trainer 0 (host:0) of run 'run'"));
  other = Trainer(method, 1, 2);
  other.job_name = "flights";
  // Its own words and no more: whoever reaches the port may ask.
  const std::string told = Start(other)->Error();
  EXPECT_THAT(told, HasSubstr("trainer 1 (host:1) is of job 'flights', and another job meets here"));
  EXPECT_THAT(told, Not(HasSubstr("(host:0)")));
  EXPECT_FALSE(host->EndsWithin(absl::ZeroDuration()));
  const ProcessPtr guest = Start(Trainer(method, 1, 2));
  EXPECT_THAT(guest->Trainers(), ElementsAre("127.0.0.1:100", "127.0.0.1:101"));
  EXPECT_THAT(host->Trainers(), ElementsAre("127.0.0.1:100", "127.0.0.1:101"));
}

TEST(TcpMeetingTest, ANameThatIsLoopbackOnItsOwnMachineIsReachedAtItsOtherAddresses) {
  const int port = FreePort();
  // inet_aton's way to write 127.0.0.1 stands for a name; 127.0.0.2 for the address that others know.
  InitMethod name = Tcp(port), address = Tcp(port);
  name.address.host = "2130706433";
  address.address.host = "127.0.0.2";
  const ProcessPtr host = Start(Trainer(name, 0, 2)), guest = Start(Trainer(address, 1, 2));
  EXPECT_THAT(guest->Trainers(), ElementsAre("127.0.0.1:100", "127.0.0.1:101"));
}

TEST(TcpMeetingTest, BytesFromOutsideEndTheirConnectionAlone) {
  const int port = FreePort();
  const ProcessPtr host = Start(Trainer(Tcp(port), 0, 3));
  const std::string good = EncodeMeetingFrame(Greeting(1, 3));
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, 'x'), std::string("WEIRmeet\xff\xff\xff\xff"),
        std::string("WEIRmeet\x02\0\0\0\xff\xff", 14), std::string(4096, '\0')}) {
    Line line = Line::To(port);
    line.Say(bytes);
    EXPECT_EQ(line.HearText(), "closed");
  }
  // Cut greetings, and one that comes byte by byte.
  for (size_t length = 1; length < good.size(); length += 7) Line::To(port).Say(good.substr(0, length));
  Line slow = Line::To(port);
  for (const char byte : good) slow.Say(std::string(1, byte));
  EXPECT_EQ(slow.HearText(), "WAITING trainer 2");
  // What follows a greeting is not read.
  slow.Say(std::string(10'000, 'x'));
  const ProcessPtr last = Start(Trainer(Tcp(port), 2, 3));
  EXPECT_EQ(last->Trainers(), Three());
  EXPECT_EQ(host->Trainers(), Three());
}

TEST(TcpMeetingTest, ManyStrangersKeepNobodyOut) {
  const int port = FreePort();
  const ProcessPtr host = Start(Trainer(Tcp(port), 0, 2));
  std::vector<Line> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(Line::To(port));
  const ProcessPtr guest = Start(Trainer(Tcp(port), 1, 2));
  EXPECT_TRUE(guest->Result().ok()) << guest->Error();
  EXPECT_TRUE(host->Result().ok()) << host->Error();
}

TEST(TcpMeetingTest, AProcessThatDiesIsMissingAgain) {
  const int port = FreePort();
  const ProcessPtr host = Start(Trainer(Tcp(port), 0, 3));
  {
    Line dies = Line::To(port);
    dies.Say(Greeting(2, 3));
    EXPECT_EQ(dies.HearText(), "WAITING trainer 1");
  }
  Line lives = Line::To(port);
  lives.Say(Greeting(1, 3));
  EXPECT_EQ(lives.HearText(), "WAITING trainer 2");
  const ProcessPtr again = Start(Trainer(Tcp(port), 2, 3));
  EXPECT_EQ(again->Trainers(), Three());
  EXPECT_EQ(lives.HearLast().substr(0, 8), "COMPLETE");
}

TEST(TcpMeetingTest, AConnectionThatBreaksAfterTheEndIsAnsweredAgain) {
  const int port = FreePort();
  const ProcessPtr host = Start(Trainer(Tcp(port), 0, 2));
  Line keeps = Line::To(port);
  keeps.Say(Greeting(1, 2));
  EXPECT_EQ(keeps.HearLast().substr(0, 8), "COMPLETE");
  Line again = Line::To(port);
  again.Say(Greeting(1, 2));
  EXPECT_EQ(again.HearText().substr(0, 8), "COMPLETE");
  // Another process comes to the wrong meeting, and may look for a new one.
  Line late = Line::To(port);
  v1::RendezvousGreeting another = Greeting(1, 2);
  another.set_incarnation(5);
  late.Say(another);
  EXPECT_EQ(late.HearText().substr(0, 4), "OVER");
}

TEST(TcpMeetingTest, AllHearWhyTrainer0Ends) {
  const int port = FreePort();
  const ProcessPtr host = Start(Trainer(Tcp(port), 0, 3));
  Line line = Line::To(port);
  line.Say(Greeting(1, 3));
  EXPECT_EQ(line.HearText(), "WAITING trainer 2");
  host->Cancel();
  EXPECT_THAT(line.HearLast(), AllOf(HasSubstr("FAILED ended by a signal"), HasSubstr("for trainer 2")));
}

TEST(TcpMeetingTest, ATrainer0ThatDiesIsWaitedForAnew) {
  const int port = FreePort();
  ProcessPtr guest;
  {
    Listener dies(port);
    guest = Start(Trainer(Tcp(port), 1, 2));
    Line line = dies.Accept();
    const auto greeting = line.Hear<v1::RendezvousGreeting>();
    ASSERT_TRUE(greeting.has_value());
    EXPECT_EQ(greeting->process(), "host:1");
    v1::RendezvousAnswer answer;
    answer.set_missing("trainer 7");
    line.Say(answer);
  }
  EXPECT_FALSE(guest->EndsWithin(absl::Milliseconds(300)));
  const ProcessPtr host = Start(Trainer(Tcp(port), 0, 2));
  EXPECT_TRUE(guest->Result().ok()) << guest->Error();
}

TEST(TcpMeetingTest, AnotherProgramAtThePortIsNamed) {
  const int port = FreePort();
  Listener other(port);
  const ProcessPtr host = Start(Trainer(Tcp(port), 0, 2));
  EXPECT_EQ(host->Result().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(host->Error(),
              AllOf(HasSubstr(absl::StrCat("--init_method=tcp://127.0.0.1:", port, ": trainer 0 cannot")),
                    HasSubstr("Address already in use"), HasSubstr("another program")));
  RendezvousOptions options = Trainer(Tcp(port), 1, 2);
  options.connect_deadline = absl::Seconds(2);
  const ProcessPtr guest = Start(options);
  Line line = other.Accept();
  line.Say("SSH-2.0-OpenSSH_9.2\r\n");
  EXPECT_THAT(guest->Error(), HasSubstr(absl::StrCat("a program that is no Weir trainer has 127.0.0.1:", port)));
}

TEST(TcpMeetingTest, AnAnswerThatCannotBeIsRefused) {
  const int port = FreePort();
  Listener other(port);
  const auto hears = [&](const v1::RendezvousAnswer& answer) {
    const ProcessPtr guest = Start(Trainer(Tcp(port), 1, 2));
    Line line = other.Accept();
    line.Say(answer);
    return guest->Error();
  };
  v1::RendezvousAnswer answer;
  answer.set_state(v1::RendezvousAnswer::COMPLETE);
  answer.add_trainer("127.0.0.1:1");
  EXPECT_THAT(hears(answer), HasSubstr("names 1 trainers and 0 servers that listen; there must be 2 and 0"));
  answer.add_trainer("nonsense");
  EXPECT_THAT(hears(answer), HasSubstr("'nonsense' has no port"));
  answer.Clear();
  answer.set_state(v1::RendezvousAnswer::REFUSED);
  EXPECT_THAT(hears(answer), HasSubstr("refused at"));
  answer.mutable_error()->set_code(-5);
  answer.mutable_error()->set_message("no\x1b[2J");
  EXPECT_THAT(hears(answer), AllOf(HasSubstr("refused at"), HasSubstr(": no\\x1b[2J")));
}

TEST(TcpMeetingTest, ThePlaceMustBeOfThisMachineForTrainer0) {
  InitMethod method = Tcp(6170);
  method.address.host = "203.0.113.7";
  method.source = "MASTER_ADDR=203.0.113.7 and MASTER_PORT=6170";
  const ProcessPtr host = Start(Trainer(method, 0, 2));
  EXPECT_EQ(host->Result().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(host->Error(),
              AllOf(HasSubstr(method.source), HasSubstr("this machine has no address 203.0.113.7 (it has"),
                    HasSubstr("127.0.0.1"), HasSubstr("name the host of trainer 0")));
}

TEST(TcpMeetingTest, AnUnknownHostIsNamed) {
  InitMethod method = Tcp(6170);
  method.address.host = "no-such-host.invalid";
  for (const int id : {0, 1}) {
    RendezvousOptions options = Trainer(method, id, 2);
    options.connect_deadline = absl::Seconds(2);
    EXPECT_THAT(Start(options)->Error(), HasSubstr("host no-such-host.invalid"));
  }
}

TEST(TcpMeetingTest, BehindTheAgentTheFirstFreePortIsTakenAndFound) {
  const int port = FreePort(16);
  // torchrun's agent, and two more programs, of which one says something.
  Listener agent(port), silent(port + 1), talks(port + 2);
  const InitMethod method = Tcp(port + 1, kPortsBehindAgent);
  const ProcessPtr guest = Start(Trainer(method, 1, 2));
  Line line = talks.Accept();
  line.Say("220 ready\r\n");
  const ProcessPtr host = Start(Trainer(method, 0, 2));
  EXPECT_TRUE(guest->Result().ok()) << guest->Error();
  EXPECT_TRUE(host->Result().ok()) << host->Error();
}

TEST(TcpMeetingTest, TwoRunsShareTheirPorts) {
  const int port = FreePort(16);
  const InitMethod method = Tcp(port, kPortsBehindAgent);
  std::vector<ProcessPtr> processes;
  for (const int id : {1, 0}) {
    for (const char* run : {"a", "b"}) {
      RendezvousOptions options = Trainer(method, id, 2);
      options.run_id = run;
      options.endpoint = absl::StrCat("127.0.0.1:", (run[0] == 'a' ? 100 : 200) + id);
      processes.push_back(Start(options));
    }
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    const int first = i % 2 == 0 ? 100 : 200;
    EXPECT_THAT(processes[i]->Trainers(),
                ElementsAre(absl::StrCat("127.0.0.1:", first), absl::StrCat("127.0.0.1:", first + 1)));
  }
}

// Leaves a file as a process does that has died since.
void LeaveFile(const std::string& directory, const v1::RendezvousGreeting& greeting) {
  const std::string path = absl::StrCat(directory, "/trainer.", greeting.id(), ".",
                                        absl::Hex(greeting.incarnation(), absl::kZeroPad16), ".here");
  ASSERT_TRUE(WriteFileAtomically(path, EncodeMeetingFrame(greeting)).ok());
}

TEST(FileMeetingTest, FilesOfAnEarlierRunAreNeverWaitedForAndRemoved) {
  const std::string directory = NewDirectory();
  v1::RendezvousGreeting old = Greeting(1, 2);
  old.set_endpoint("127.0.0.1:999");
  LeaveFile(directory, old);
  // The former trainer 0, too, which has a smaller number.
  old.set_id(0);
  old.set_incarnation(1);
  LeaveFile(directory, old);
  v1::RendezvousGreeting other = Greeting(1, 2);
  other.set_job_name("flights");
  other.set_incarnation(2);
  LeaveFile(directory, other);
  const ProcessPtr host = Start(Trainer(Files(directory), 0, 2));
  // Longer than the lease: what is left is known to be.
  EXPECT_FALSE(host->EndsWithin(absl::Seconds(4)));
  const ProcessPtr guest = Start(Trainer(Files(directory), 1, 2));
  EXPECT_THAT(host->Trainers(), ElementsAre("127.0.0.1:100", "127.0.0.1:101"));
  EXPECT_THAT(guest->Trainers(), ElementsAre("127.0.0.1:100", "127.0.0.1:101"));
  EXPECT_THAT(*ListDirectory(directory), ElementsAre("trainer.1.0000000000000002.here"));
}

TEST(FileMeetingTest, OtherFilesAreLeftAlone) {
  const std::string directory = NewDirectory();
  const std::vector<std::pair<std::string, std::string>> files = {
      {"notes.txt", "x"},
      {"trainer.1.0000000000000005.here", "damaged"},
      {"trainer.1.0000000000000006.here", ""},
      {"trainer.1.0000000000000007.here", EncodeMeetingFrame(Greeting(0, 2))},
      {"server.0.here", std::string(100'000, 'x')}};
  for (const auto& [name, content] : files) ASSERT_TRUE(WriteFileAtomically(directory + "/" + name, content).ok());
  const ProcessPtr host = Start(Trainer(Files(directory), 0, 2)), guest = Start(Trainer(Files(directory), 1, 2));
  EXPECT_TRUE(host->Result().ok()) << host->Error();
  EXPECT_TRUE(guest->Result().ok()) << guest->Error();
  EXPECT_EQ(ListDirectory(directory)->size(), files.size());
}

// Others may write into the directory.
TEST(FileMeetingTest, LinksAreNotFollowedAndPipesNotWaitedFor) {
  const std::string directory = NewDirectory(), precious = NewDirectory() + "/precious";
  ASSERT_TRUE(WriteFileAtomically(precious, "kept").ok());
  const v1::RendezvousGreeting own = Greeting(1, 3);
  const std::string here =
      absl::StrCat(directory, "/trainer.1.", absl::Hex(own.incarnation(), absl::kZeroPad16), ".here");
  const std::string temporary = absl::StrCat(here, ".new.", absl::Hex(own.incarnation(), absl::kZeroPad16));
  std::filesystem::create_symlink(precious, temporary);
  ASSERT_EQ(mkfifo((directory + "/trainer.2.0000000000000005.here").c_str(), 0600), 0);
  const auto board = FileBoard::Open(directory, own, absl::Seconds(2));
  ASSERT_TRUE(board.ok()) << board.status();
  EXPECT_EQ(*ReadWholeFile(precious), "kept");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(here)));
  EXPECT_TRUE((*board)->Look().ok());
  EXPECT_THAT((*board)->posts(), IsEmpty());
}

TEST(FileMeetingTest, RunsMayMeetInOneDirectory) {
  const std::string directory = NewDirectory();
  std::vector<ProcessPtr> processes;
  for (const int id : {1, 0}) {
    for (const char* run : {"a", "b"}) {
      RendezvousOptions options = Trainer(Files(directory), id, 2);
      options.run_id = run;
      options.endpoint = absl::StrCat("127.0.0.1:", (run[0] == 'a' ? 100 : 200) + id);
      processes.push_back(Start(options));
    }
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    const int first = i % 2 == 0 ? 100 : 200;
    EXPECT_THAT(processes[i]->Trainers(),
                ElementsAre(absl::StrCat("127.0.0.1:", first), absl::StrCat("127.0.0.1:", first + 1)));
  }
  EXPECT_THAT(*ListDirectory(directory), IsEmpty());
}

TEST(FileMeetingTest, AMemberOfAnotherRunSaysSo) {
  const std::string directory = NewDirectory();
  const ProcessPtr host = Start(Trainer(Files(directory), 0, 2));
  RendezvousOptions other = Trainer(Files(directory), 1, 2);
  other.run_id = "old";
  other.connect_deadline = absl::Seconds(2);
  EXPECT_THAT(
      Start(other)->Error(),
      AllOf(HasSubstr("for trainer 0; not of this run: trainer 0 (host:0) is of run 'run', trainer 1 (host:1) of "
                      "run 'old'")));
}

TEST(FileMeetingTest, OfTwoTrainers0OneGivesUp) {
  const std::string directory = NewDirectory();
  RendezvousOptions one = Trainer(Files(directory), 0, 2), two = one;
  two.process = "second:0";
  const ProcessPtr a = Start(one), b = Start(two);
  const absl::Time until = Clock::Real()->Now() + absl::Seconds(20);
  while (!a->EndsWithin(absl::Milliseconds(20)) && !b->EndsWithin(absl::Milliseconds(20))) {
    ASSERT_LT(Clock::Real()->Now(), until);
  }
  const bool a_gave_up = a->EndsWithin(absl::ZeroDuration());
  EXPECT_THAT((a_gave_up ? a : b)->Error(), AllOf(HasSubstr("trainer 0 (host:0)"), HasSubstr("trainer 0 (second:0)"),
                                                  HasSubstr("is there already; start each id once")));
  const ProcessPtr guest = Start(Trainer(Files(directory), 1, 2));
  EXPECT_TRUE(guest->Result().ok()) << guest->Error();
  EXPECT_TRUE((a_gave_up ? b : a)->Result().ok());
}

TEST(FileMeetingTest, AMemberThatDiesIsMissingAgain) {
  const std::string directory = NewDirectory();
  const ProcessPtr host = Start(Trainer(Files(directory), 0, 3));
  {
    // It lives for some beats, as far as the host can see, and is killed: its file stays.
    const auto board = FileBoard::Open(directory, Greeting(1, 3), absl::Seconds(2));
    ASSERT_TRUE(board.ok()) << board.status();
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE((*board)->Beat().ok());
      EXPECT_FALSE(host->EndsWithin(absl::Milliseconds(200)));
    }
    v1::RendezvousGreeting last = Greeting(1, 3);
    last.set_incarnation(78);
    LeaveFile(directory, last);
  }
  const ProcessPtr second = Start(Trainer(Files(directory), 2, 3));
  EXPECT_FALSE(second->EndsWithin(absl::Seconds(3)));
  const ProcessPtr again = Start(Trainer(Files(directory), 1, 3));
  EXPECT_EQ(again->Trainers(), Three());
  EXPECT_EQ(host->Trainers(), Three());
}

TEST(FileMeetingTest, APlaceThatCannotBeUsedIsNamed) {
  const std::string directory = NewDirectory();
  const auto error = [](const std::string& path) {
    const ProcessPtr process = Start(Trainer(Files(path), 0, 2));
    EXPECT_EQ(process->Result().status().code(), absl::StatusCode::kFailedPrecondition);
    return process->Error();
  };
  EXPECT_THAT(error(directory + "/no/meet"),
              AllOf(HasSubstr("--init_method=file://"), HasSubstr("cannot make the directory"),
                    HasSubstr("No such file or directory")));
  ASSERT_TRUE(WriteFileAtomically(directory + "/file", "x").ok());
  EXPECT_THAT(error(directory + "/file"), HasSubstr("is a file; processes meet in a directory"));
  // A directory is made below one that is there.
  const ProcessPtr host = Start(Trainer(Files(directory + "/new"), 0, 1));
  EXPECT_TRUE(host->Result().ok()) << host->Error();
}

}  // namespace
}  // namespace weir
