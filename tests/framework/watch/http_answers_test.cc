#include "framework/watch/http_answers.h"

#include <signal.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kText[] = "text/plain; charset=utf-8";

WatchPage Page(std::string path, absl::StatusOr<std::string> content) {
  return {.path = std::move(path), .content_type = kText, .content = [content](std::string_view) { return content; }};
}

std::vector<WatchPage> Pages() {
  return {Page("/", "index"),
          Page("/metrics", "weir_steps_total 1\n"),
          Page("/none", absl::NotFoundError("no run")),
          Page("/later", absl::UnavailableError("not yet")),
          Page("/bug", absl::InternalError("a bug")),
          {.path = "/throws", .content_type = kText, .content = [](std::string_view) -> absl::StatusOr<std::string> {
             throw std::runtime_error("private\r\nSet-Cookie: a");
           }}};
}

class HttpAnswersTest : public ::testing::Test {
 protected:
  std::string Get(std::string_view target, std::string_view headers = "") {
    return answers_.Answer(
        absl::StrCat("GET ", std::string(target), " HTTP/1.1\r\nHost: localhost:80\r\n", std::string(headers), "\r\n"));
  }
  std::string FromHost(std::string_view host) {
    return answers_.Answer(absl::StrCat("GET / HTTP/1.1\r\nHost: ", std::string(host), "\r\n\r\n"));
  }

  HttpAnswers answers_{Pages(), "127.0.0.1", /*local_only=*/true};
};

TEST_F(HttpAnswersTest, AnAnswerHasTheContentItsTypeAndItsLength) {
  EXPECT_THAT(Get("/metrics"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\nContent-Type: text/plain; charset=utf-8\r\n"),
                    HasSubstr("\r\nContent-Length: 19\r\n"), HasSubstr("\r\nConnection: close\r\n"),
                    EndsWith("\r\n\r\nweir_steps_total 1\n")));
}

TEST_F(HttpAnswersTest, EveryAnswerTellsBrowsersToBeCareful) {
  for (const char* target : {"/metrics", "/nothing"}) {
    EXPECT_THAT(Get(target), AllOf(HasSubstr("\r\nContent-Security-Policy: default-src 'self' 'unsafe-inline'\r\n"),
                                   HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"),
                                   HasSubstr("\r\nCache-Control: no-store\r\n")));
  }
}

TEST_F(HttpAnswersTest, AQueryIsNoPartOfThePath) { EXPECT_THAT(Get("/metrics?name=x"), StartsWith("HTTP/1.1 200 ")); }

TEST_F(HttpAnswersTest, HeadHasNoBody) {
  EXPECT_THAT(answers_.Answer("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\r\nContent-Length: 19\r\n"), EndsWith("\r\n\r\n")));
}

TEST_F(HttpAnswersTest, OtherPathsAreNotFound) {
  for (const char* target : {"/nothing", "/metrics/", "//metrics", "/./metrics", "/%6detrics", "/../../etc/passwd",
                             "/%2e%2e/%2e%2e/etc/passwd", "/..%2fetc%2fpasswd", "http://localhost/metrics", "*", "x"}) {
    EXPECT_THAT(Get(target), AllOf(StartsWith("HTTP/1.1 404 "), EndsWith("\r\n\r\nthere is no such page\n"))) << target;
  }
}

TEST_F(HttpAnswersTest, AnErrorOfAPageIsAnswered) {
  EXPECT_THAT(Get("/none"), AllOf(StartsWith("HTTP/1.1 404 "), EndsWith("\r\n\r\nno run\n")));
  EXPECT_THAT(Get("/later"), AllOf(StartsWith("HTTP/1.1 503 "), EndsWith("\r\n\r\nnot yet\n")));
  EXPECT_THAT(Get("/bug"), AllOf(StartsWith("HTTP/1.1 500 "), EndsWith("\r\n\r\na bug\n")));
  EXPECT_THAT(Get("/throws"), AllOf(StartsWith("HTTP/1.1 500 "), Not(HasSubstr("private"))));
}

TEST_F(HttpAnswersTest, OtherMethodsAreNotAllowed) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"}) {
    EXPECT_THAT(answers_.Answer(absl::StrCat(method, " /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")),
                AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD\r\n"), Not(HasSubstr("weir_"))))
        << method;
  }
}

TEST_F(HttpAnswersTest, ARequestHasNoBody) {
  for (const char* header :
       {"Content-Length: 5\r\n", "Content-Length: 18446744073709551616\r\n", "Content-Length: -1\r\n",
        "Transfer-Encoding: chunked\r\n", "Content-Length: 0\r\nContent-Length: 5\r\n"}) {
    EXPECT_THAT(Get("/metrics", header), StartsWith("HTTP/1.1 413 ")) << header;
  }
  EXPECT_THAT(Get("/metrics", "Content-Length: 0\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpAnswersTest, NeitherRangesNorCompressionNorContinue) {
  EXPECT_THAT(Get("/metrics", "Range: bytes=0-1\r\nAccept-Encoding: gzip, br\r\nExpect: 100-continue\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\nweir_steps_total 1\n"),
                    HasSubstr("\r\nAccept-Ranges: none\r\n")));
}

TEST_F(HttpAnswersTest, LocalNamesMayAsk) {
  for (const char* host : {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080"}) {
    EXPECT_THAT(FromHost(host), StartsWith("HTTP/1.1 200 ")) << host;
  }
}

TEST_F(HttpAnswersTest, NamesOfOthersAreRefused) {
  for (const char* host : {"evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example",
                           "[::1", "[::2]:80", "[", ":80", "::1", "127.0.0.2", "localhost, evil.example"}) {
    EXPECT_THAT(FromHost(host), AllOf(StartsWith("HTTP/1.1 403 "), Not(HasSubstr("index")))) << host;
  }
}

TEST_F(HttpAnswersTest, ThereIsOneHost) {
  EXPECT_THAT(answers_.Answer("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answers_.Answer("GET / HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answers_.Answer("GET / HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpAnswersTest, AServerForOtherMachinesHasAnyName) {
  HttpAnswers answers(Pages(), "0.0.0.0", /*local_only=*/false);
  EXPECT_THAT(answers.Answer("GET / HTTP/1.1\r\nHost: trainer-0.example:9100\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpAnswersTest, DamagedRequestsAreAnswered) {
  for (const std::string& head : std::vector<std::string>{
           "\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/1.1", "GET / HTTP/1.1\r\nHost: localhost\r\n",
           "GET / HTTP/9.9\r\n\r\n", "GET  / HTTP/1.1 x\r\n\r\n", "BREW / HTTP/1.1\r\n\r\n", "get / HTTP/1.1\r\n\r\n",
           "GET /?a?b HTTP/1.1\r\n\r\n", std::string("GET /\0 HTTP/1.1\r\n\r\n", 19), "\x16\x03\x01\x02\r\n\r\n",
           "PRI * HTTP/2.0\r\n\r\n"}) {
    EXPECT_THAT(answers_.Answer(head), StartsWith("HTTP/1.1 400 ")) << head;
  }
  EXPECT_EQ(answers_.Answer(""), "");
}

TEST_F(HttpAnswersTest, LongRequestsAreAnswered) {
  const std::string most(HttpAnswers::kMaxHead - 200, 'x');
  EXPECT_THAT(Get("/" + most), StartsWith("HTTP/1.1 414 "));
  EXPECT_THAT(Get("/", absl::StrCat("Cookie: ", most, "\r\n")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Get("/", absl::StrCat("Cookie: ", most.substr(0, 8000), "\r\nX: ", most.substr(0, 8000), "\r\n")),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/", absl::StrCat("Cookie: ", most, most, "\r\n")), StartsWith("HTTP/1.1 431 "));
  // A header of many ranges is matched by a regular expression of the library.
  std::string ranges = "Range: bytes=0-0";
  while (ranges.size() < 8000) ranges += ",0-0";
  EXPECT_THAT(Get("/", ranges + "\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/", "Range: bytes=" + std::string(8000, '1') + "\r\n"), StartsWith("HTTP/1.1 "));
}

TEST_F(HttpAnswersTest, SignalsStayAsTheyWere) {
  struct sigaction now = {};
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace weir
