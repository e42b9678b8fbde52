// Stands in for pserver and trainer in tests of launch: same flags, no training.
//
// A server binds a free port, says that it is ready, and ends when every trainer has come and gone; SIGTERM changes
// nothing for it. A trainer connects to all of --pservers, on this machine whatever their hosts. Then each does what
// the variable FAKE_PSERVER_<id> or FAKE_TRAINER_<id> says, or FAKE_PSERVER, FAKE_TRAINER: commands with ';' between
// them.
//
//   out TEXT    err TEXT    a line on stdout or stderr
//   partial TEXT            on stdout, without newline
//   repeat N TEXT           N lines on stdout
//   args                    every argument, a line each
//   env NAME                "NAME=value" or "NAME unset"
//   cpus                    "cpus N": how many processors it may use
//   exit N    raise N       ends
//   stop                    "stopped by PID", and is stopped until it gets SIGCONT
//   cat PATH                the lines of a file
//   held                    which signals were held back when it began: "held 1 2 15"
//   block                   SIGTERM and SIGINT stay pending from now on
//   wait                    for a signal, says which and ends with 0
//   halt                    as wait, then as a chief whose job was stopped: "done ... stopped=1", --stop_code or 5
//   ignore                  stays for ever, through SIGTERM, SIGINT and SIGHUP
//   child                   leaves a process behind that does the same
//   touch PATH    await PATH    sleep MILLISECONDS
//   parent PATH             writes the process id of its parent into a file
//   unready                 (first, server) never ready, but ends at SIGTERM
//   unconnected             (first, trainer) connects to nobody

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> arguments;

std::string Flag(const std::string& name) {
  std::string value;
  for (const std::string& argument : arguments) {
    if (argument.starts_with(name + "=")) value = argument.substr(name.size() + 1);
  }
  return value;
}

[[noreturn]] void Fail(const char* what) {
  perror(what);
  exit(99);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int Listen() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string endpoint = Flag("--endpoint");
  sockaddr_in address = Loopback(atoi(endpoint.substr(endpoint.rfind(':') + 1).c_str()));
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 512) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Fail("listen");
  }
  const int port = ntohs(address.sin_port);
  printf("ready server=%s endpoint=127.0.0.1:%d\n", Flag("--server_id").c_str(), port);
  return listener;
}

// Until all have come and gone.
void ServeTrainers(int listener) {
  const int trainers = atoi(Flag("--set=distribute.trainers").c_str());
  std::vector<pollfd> fds = {{listener, POLLIN, 0}};
  for (int gone = 0; gone < trainers;) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[0].revents != 0) fds.push_back({accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), POLLIN, 0});
    char byte;
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0 || read(fds[i].fd, &byte, 1) > 0) continue;
      close(fds[i].fd);
      fds[i].fd = -1;
      ++gone;
    }
  }
}

void Connect() {
  std::istringstream list(Flag("--pservers"));
  for (std::string endpoint; std::getline(list, endpoint, ',');) {
    const sockaddr_in address = Loopback(atoi(endpoint.substr(endpoint.rfind(':') + 1).c_str()));
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(peer, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) Fail("connect");
  }
}

std::string held = "held";

// Those that it was started with; they end it from now on, but for what it is told to do.
void TakeHeldSignals() {
  sigset_t set;
  sigprocmask(SIG_SETMASK, nullptr, &set);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    if (sigismember(&set, signal) == 1) held += " " + std::to_string(signal);
  }
  sigemptyset(&set);
  sigprocmask(SIG_SETMASK, &set, nullptr);
}

void BlockStopSignals(sigset_t* set) {
  sigemptyset(set);
  sigaddset(set, SIGTERM);
  sigaddset(set, SIGINT);
  sigaddset(set, SIGHUP);
  sigprocmask(SIG_BLOCK, set, nullptr);
}

[[noreturn]] void StayForEver() {
  sigset_t set;
  BlockStopSignals(&set);
  while (true) pause();
}

void WaitForSignal() {
  sigset_t set;
  BlockStopSignals(&set);
  puts("waiting");
  int signal = 0;
  sigwait(&set, &signal);
  printf("got signal %d\n", signal);
  // One that was passed on twice would come at once.
  const timespec shortly = {0, 100'000'000};
  if (sigtimedwait(&set, nullptr, &shortly) > 0) puts("got a second signal");
}

// Runs a command that prints. Returns false if it is another one.
bool Print(const std::string& verb, const std::string& rest) {
  if (verb == "out") {
    puts(rest.c_str());
  } else if (verb == "err") {
    fprintf(stderr, "%s\n", rest.c_str());
  } else if (verb == "partial") {
    fputs(rest.c_str(), stdout);
    fflush(stdout);
  } else if (verb == "repeat") {
    const std::string text = rest.substr(rest.find(' ') + 1);
    for (int i = 0; i < atoi(rest.c_str()); ++i) printf("%d %s\n", i, text.c_str());
  } else if (verb == "args") {
    for (const std::string& argument : arguments) printf("arg %s\n", argument.c_str());
  } else if (verb == "env") {
    const char* value = getenv(rest.c_str());
    printf("%s%s%s\n", rest.c_str(), value == nullptr ? " unset" : "=", value == nullptr ? "" : value);
  } else if (verb == "cpus") {
    cpu_set_t set;
    printf("cpus %d\n", sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1);
  } else if (verb == "cat") {
    std::ifstream file(rest);
    for (std::string line; std::getline(file, line);) puts(line.c_str());
  } else if (verb == "held") {
    puts(held.c_str());
  } else {
    return false;
  }
  return true;
}

void Do(const std::string& command) {
  const size_t blank = command.find(' ');
  const std::string verb = command.substr(0, blank);
  const std::string rest = blank == std::string::npos ? "" : command.substr(blank + 1);
  if (Print(verb, rest)) return;
  if (verb == "exit") {
    exit(atoi(rest.c_str()));
  } else if (verb == "raise") {
    raise(atoi(rest.c_str()));
  } else if (verb == "stop") {
    printf("stopped by %d\n", getpid());
    raise(SIGSTOP);
  } else if (verb == "block") {
    sigset_t set;
    BlockStopSignals(&set);
  } else if (verb == "wait") {
    WaitForSignal();
    exit(0);
  } else if (verb == "halt") {
    WaitForSignal();
    puts("done steps=3 stopped=1");
    const std::string code = Flag("--stop_code");
    exit(code.empty() ? 5 : atoi(code.c_str()));
  } else if (verb == "ignore") {
    puts("ignoring");
    StayForEver();
  } else if (verb == "child") {
    if (fork() == 0) StayForEver();
  } else if (verb == "touch") {
    std::ofstream(rest) << "";
  } else if (verb == "parent") {
    std::ofstream(rest) << getppid();
  } else if (verb == "sleep") {
    usleep(1000 * static_cast<unsigned>(atoi(rest.c_str())));
  } else if (verb == "await") {
    while (access(rest.c_str(), F_OK) != 0) usleep(5000);
  } else if (verb != "unready" && verb != "unconnected" && !verb.empty()) {
    fprintf(stderr, "fake: unknown command '%s'\n", command.c_str());
    exit(98);
  }
}

}  // namespace

int main(int argc, char** argv) {
  arguments.assign(argv + 1, argv + argc);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  TakeHeldSignals();
  const bool server = !Flag("--server_id").empty();
  const std::string variable = server ? "FAKE_PSERVER_" + Flag("--server_id") : "FAKE_TRAINER_" + Flag("--trainer_id");
  const char* script = getenv(variable.c_str());
  if (script == nullptr) script = getenv(server ? "FAKE_PSERVER" : "FAKE_TRAINER");
  const std::string text = script == nullptr ? "" : script;
  std::istringstream commands(text);
  int listener = -1;
  if (server && !text.starts_with("unready")) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    listener = Listen();
  }
  if (!server && !text.starts_with("unconnected")) Connect();
  for (std::string command; std::getline(commands, command, ';');) Do(command);
  if (listener >= 0) ServeTrainers(listener);
  if (server && listener < 0) pause();
  return 0;
}
