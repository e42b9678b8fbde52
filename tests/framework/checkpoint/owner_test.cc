#include "framework/checkpoint/owner.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/checkpoint/process_identity.h"
#include "google/protobuf/text_format.h"
#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Ended, waited for or not: its parent says when.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ > 0) return;
    while (true) pause();
  }
  ~Child() { End(); }
  void Kill() {
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);  // a zombie
  }
  void End() {
    if (pid_ <= 0) return;
    Kill();
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

v1::ProcessIdentity IdentityOf(pid_t pid) {
  v1::ProcessIdentity identity = ThisProcess();
  identity.set_name(absl::StrCat("here:", pid));
  identity.set_pid(pid);
  // The 22nd field; nothing in this program's name looks like a parenthesis.
  const std::string stat = *ReadWholeFile(absl::StrCat("/proc/", pid, "/stat"));
  size_t at = stat.rfind(')') + 1;
  for (int field = 3; field <= 22; ++field) at = stat.find(' ', at) + 1;
  identity.set_start(std::stoll(stat.substr(at)));
  return identity;
}

TEST(ProcessIdentityTest, AProcessThatHasEndedIsToldApartFromOneThatLives) {
  EXPECT_FALSE(HasEnded(ThisProcess()));
  Child child;
  const v1::ProcessIdentity identity = IdentityOf(child.pid());
  EXPECT_FALSE(HasEnded(identity));
  // Its pid, given to a process that started at another time.
  v1::ProcessIdentity earlier = identity;
  earlier.set_start(identity.start() - 1);
  EXPECT_TRUE(HasEnded(earlier));
  child.Kill();
  EXPECT_TRUE(HasEnded(identity));
  child.End();
  EXPECT_TRUE(HasEnded(identity));
}

TEST(ProcessIdentityTest, OfAnotherBootOrNamespaceNothingIsKnown) {
  Child child;
  v1::ProcessIdentity gone = IdentityOf(child.pid());
  child.End();
  v1::ProcessIdentity elsewhere = gone;
  elsewhere.set_boot("another");
  EXPECT_FALSE(HasEnded(elsewhere));
  elsewhere = gone;
  elsewhere.set_pid_namespace("pid:[1]");
  EXPECT_FALSE(HasEnded(elsewhere));
  EXPECT_FALSE(HasEnded(v1::ProcessIdentity()));
}

class OwnerTest : public ::testing::Test {
 protected:
  const std::string dir_ = FreshDir("owner");
  FakeClock clock_;

  DirectoryOwner Owner(const std::string& run, bool publishes = true) {
    return DirectoryOwner(
        {.dir = dir_, .job = "job of " + run, .run = run, .publishes = publishes, .clock = &clock_, .thread = false});
  }
  static std::string Message(const absl::Status& status) { return std::string(status.message()); }
  // The mark of a process that this one knows nothing of.
  void MarkOfAnotherHost(double lease_s = 10) {
    v1::DirectoryOwner owner;
    owner.set_job("other");
    owner.set_run("other");
    owner.set_lease_s(lease_s);
    owner.mutable_process()->set_name("far:7");
    owner.mutable_process()->set_boot("another");
    std::string text;
    google::protobuf::TextFormat::PrintToString(owner, &text);
    ASSERT_OK(WriteFileAtomically(dir_ + "/OWNER", text));
  }
  void Beat() {
    const std::string text = *ReadWholeFile(dir_ + "/OWNER");
    ASSERT_OK(WriteFileAtomically(dir_ + "/OWNER", text + "beat: 1\n"));
  }
};

TEST_F(OwnerTest, ALivingOwnerIsNamedAndAnEndedOneLeavesNothing) {
  std::string holder;
  {
    DirectoryOwner first = Owner("a");
    ASSERT_TRUE(*first.Take(&holder));
    EXPECT_EQ(holder, "");
    ASSERT_OK(first.Check());
    DirectoryOwner second = Owner("b");
    EXPECT_FALSE(*second.Take(&holder));  // it lives, or is stuck
    EXPECT_THAT(holder, HasSubstr("job 'job of a'"));
    EXPECT_FALSE(*second.Take(&holder));
    first.Renew();
    const absl::Status refused = second.Take(&holder).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(Message(refused),
                HasSubstr(absl::StrCat("belongs to job 'job of a' (", ThisProcess().name(), "), which is running")));
    ASSERT_OK(first.Check());
  }
  EXPECT_FALSE(PathExists(dir_ + "/OWNER"));
  DirectoryOwner third = Owner("c");
  EXPECT_TRUE(*third.Take(&holder));
}

TEST_F(OwnerTest, AJobThatWasKilledHereStartsAgainWithoutDelay) {
  Child child;
  v1::DirectoryOwner owner;
  owner.set_job("killed");
  owner.set_run("a");
  *owner.mutable_process() = IdentityOf(child.pid());
  std::string text;
  google::protobuf::TextFormat::PrintToString(owner, &text);
  ASSERT_OK(WriteFileAtomically(dir_ + "/OWNER", text));
  DirectoryOwner second = Owner("b");
  std::string holder;
  EXPECT_FALSE(*second.Take(&holder));
  child.Kill();
  EXPECT_TRUE(*second.Take(&holder));
  ASSERT_OK(second.Check());
}

TEST_F(OwnerTest, OfAnotherHostTheMarkIsWatchedForItsLease) {
  MarkOfAnotherHost(/*lease_s=*/20);
  DirectoryOwner owner = Owner("b");
  std::string holder;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(*owner.Take(&holder)) << i;
    EXPECT_THAT(holder, HasSubstr("job 'other' (far:7)"));
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(*owner.Take(&holder));
  ASSERT_OK(owner.Check());
}

TEST_F(OwnerTest, AMarkThatChangesIsOfOneThatLives) {
  MarkOfAnotherHost();
  DirectoryOwner owner = Owner("b");
  std::string holder;
  EXPECT_FALSE(*owner.Take(&holder));
  clock_.Advance(absl::Seconds(2));
  Beat();
  EXPECT_TRUE(absl::IsFailedPrecondition(owner.Take(&holder).status()));
}

// A machine that was suspended between two looks has not watched meanwhile.
TEST_F(OwnerTest, TimeInWhichNobodyLookedCountsForLittle) {
  MarkOfAnotherHost();
  DirectoryOwner owner = Owner("b");
  std::string holder;
  EXPECT_FALSE(*owner.Take(&holder));
  clock_.Advance(absl::Hours(1));
  EXPECT_FALSE(*owner.Take(&holder));
  Beat();
  EXPECT_FALSE(owner.Take(&holder).ok());
}

TEST_F(OwnerTest, OneThatWasTakenForDeadRenewsNothingAndIsToldAtItsNextCheckpoint) {
  DirectoryOwner stuck = Owner("a");
  std::string holder;
  ASSERT_TRUE(*stuck.Take(&holder));
  DirectoryOwner next = Owner("b");
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(*next.Take(&holder));
    clock_.Advance(absl::Seconds(1));
  }
  ASSERT_TRUE(*next.Take(&holder));
  stuck.Renew();
  ASSERT_OK(next.Check());
  const absl::Status told = stuck.Check();
  EXPECT_TRUE(absl::IsFailedPrecondition(told)) << told;
  EXPECT_THAT(Message(told), HasSubstr("has passed to job 'job of b'"));
}

TEST_F(OwnerTest, ProcessesOfOneRunShareADirectoryAndOneOfThemPublishes) {
  std::string holder;
  DirectoryOwner chief = Owner("a"), server = Owner("a", /*publishes=*/false);
  ASSERT_TRUE(*chief.Take(&holder));
  ASSERT_TRUE(*server.Take(&holder));
  ASSERT_OK(chief.Check());
  ASSERT_OK(server.Check());
  // Another trainer has taken the place of a dead one, which was not dead.
  DirectoryOwner successor = Owner("a");
  ASSERT_TRUE(*successor.Take(&holder));
  ASSERT_OK(successor.Check());
  ASSERT_OK(server.Check());
  bool of_this_run = false;
  EXPECT_THAT(Message(chief.Check(&of_this_run)), HasSubstr("another process of this run"));
  EXPECT_TRUE(of_this_run);
  // The duty has come back.
  ASSERT_TRUE(*chief.Take(&holder));
  ASSERT_OK(chief.Check(&of_this_run));
  EXPECT_FALSE(of_this_run);
  EXPECT_FALSE(successor.Check().ok());
}

TEST_F(OwnerTest, ADirectoryThatWasRemovedIsMarkedAnew) {
  DirectoryOwner owner = Owner("a");
  std::string holder;
  ASSERT_TRUE(*owner.Take(&holder));
  std::filesystem::remove_all(dir_);
  ::testing::internal::CaptureStderr();
  ASSERT_OK(owner.Check());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("was removed while the job ran, with every checkpoint in it"));
  EXPECT_TRUE(PathExists(dir_ + "/OWNER"));
  ASSERT_OK(owner.Check());
  // The mark alone.
  std::filesystem::remove(dir_ + "/OWNER");
  ::testing::internal::CaptureStderr();
  ASSERT_OK(owner.Check());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("check whether its checkpoints are still there"));
  EXPECT_TRUE(PathExists(dir_ + "/OWNER"));
}

TEST_F(OwnerTest, AMarkThatMakesNoSenseIsWatchedLikeAnyOther) {
  ASSERT_OK(WriteFileAtomically(dir_ + "/OWNER", "\x01 no text"));
  DirectoryOwner owner = Owner("b");
  std::string holder;
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(*owner.Take(&holder)) << i;
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(*owner.Take(&holder));
}

TEST_F(OwnerTest, TheThreadRenewsTheMark) {
  DirectoryOwner owner({.dir = dir_, .job = "job", .run = "a", .beat = absl::Milliseconds(10)});
  std::string holder;
  ASSERT_TRUE(*owner.Take(&holder));
  DirectoryOwner second = Owner("b");
  absl::StatusOr<bool> taken = false;
  while (taken.ok() && !*taken) taken = second.Take(&holder);
  EXPECT_THAT(Message(taken.status()), HasSubstr("which is running"));
}

// Whoever may write into the directory must not end the processes that look at the mark.
TEST_F(OwnerTest, AMarkOfAnyNestingIsOneOfAnUnknownOwner) {
  for (const char* open : {"a{", "a:<", "process{", "a:[{"}) {
    std::string text;
    while (text.size() < 60'000) text += open;  // a longer mark is not read
    ASSERT_OK(WriteFileAtomically(dir_ + "/OWNER", text));
    DirectoryOwner owner = Owner("a");
    std::string holder;
    EXPECT_FALSE(*owner.Take(&holder));
    EXPECT_THAT(holder, HasSubstr("a process unknown has marked"));
  }
}

TEST_F(OwnerTest, AMarkThatIsNoRegularFileIsRefusedAtOnce) {
  const std::string mark = dir_ + "/OWNER";
  DirectoryOwner owner = Owner("a");
  std::string holder;
  ASSERT_EQ(mkfifo(mark.c_str(), 0600), 0);
  EXPECT_THAT(Message(owner.Take(&holder).status()), HasSubstr("OWNER is a FIFO; a regular file was expected"));
  std::filesystem::remove(mark);
  std::filesystem::create_symlink("/dev/zero", mark);
  EXPECT_THAT(Message(owner.Take(&holder).status()),
              HasSubstr("OWNER is a symbolic link; a regular file was expected"));
}

TEST(ProbeTest, AServerRemovesProbesOfKilledProcessesOfItsHost) {
  const std::string dir = FreshDir("probes");
  Child child;
  v1::DirectoryProof proof;
  *proof.mutable_process() = IdentityOf(child.pid());
  std::string text;
  google::protobuf::TextFormat::PrintToString(proof, &text);
  ASSERT_OK(WriteFileAtomically(dir + "/probe-00000000000000aa", text));
  // Killed while it wrote one.
  ASSERT_OK(WriteFileAtomically(dir + "/probe-00000000000000cc.tmp.7-8-9", text));
  proof.mutable_process()->set_boot("another");
  google::protobuf::TextFormat::PrintToString(proof, &text);
  ASSERT_OK(WriteFileAtomically(dir + "/probe-00000000000000bb", text));
  const auto first = WriteProbe(dir);
  EXPECT_TRUE(PathExists(dir + "/probe-00000000000000aa"));
  child.Kill();
  const auto second = WriteProbe(dir);
  EXPECT_FALSE(PathExists(dir + "/probe-00000000000000aa"));
  EXPECT_FALSE(PathExists(dir + "/probe-00000000000000cc.tmp.7-8-9"));
  EXPECT_TRUE(PathExists(dir + "/probe-00000000000000bb"));
  EXPECT_EQ(*ReadProbe(dir, first->name), first->token);
  EXPECT_EQ(*ReadProbe(dir, second->name), second->token);
  EXPECT_NE(first->token, second->token);
}

}  // namespace
}  // namespace weir
