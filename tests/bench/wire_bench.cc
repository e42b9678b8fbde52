// Tables over the wire: one server process, one client process, loop-back. Prints each figure beside its ceilings of
// the same run; every result is checked before it is timed.
//
//   wire_bench                        all of it
//   wire_bench --only=rows|step       pull and push of 53,248 random rows; the raw step
//
// rows: tables of 1 M and 10 M rows of 16 floats and Adagrad's state. A pull begins with ids in no order and ends with
// each row in its place; a push begins with a gradient for each of them and ends when the server has updated the rows.
// Beside it: the same bytes as bare gRPC ByteBuffers between the same two processes, buffers recycled; the same table
// called in the client's process on one thread. `rule` is 1 / (1 / bare + 1 / table).
//
// step: batch 4096 x 26 ids, Zipf 1.05 over 1 M, width 16: de-duplication, pull, push, SGD. Then the same with rows
// copied to every position of the batch and gradients of the positions merged by id.

#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/row_rule.h"
#include "framework/wire/buffer_pool.h"
#include "glog/logging.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "ops/id_deduper.h"
#include "proto/parameter_server.grpc.pb.h"
#include "pserver/client/client.h"
#include "pserver/inside/in_process.h"
#include "pserver/network/credentials.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_transport.h"
#include "pserver/server/server_core.h"
#include "pserver/tables/sparse_table.h"

ABSL_FLAG(std::string, only, "", "rows or step; empty: both");
ABSL_FLAG(int, repetitions, 60, "timed calls of each kind");
ABSL_FLAG(bool, unix_sockets, false, "through the server's Unix-domain socket, not TCP");
ABSL_FLAG(bool, shared_memory, false, "through memory that the two processes share");
ABSL_FLAG(
    bool, no_wire, false,
    "with --only=step: the server in this process, by direct calls: what no transport between processes can beat");
ABSL_FLAG(std::string, wire, "WIRE_FLOAT32", "what floats are while they travel, both ways");
ABSL_FLAG(bool, large, true, "also the table of 10 M rows");
ABSL_FLAG(int, server_fd, -1, "internal: be the server, tell the ports through this pipe");

namespace weir {
namespace {

constexpr int kWidth = 16;
constexpr int64_t kRows = 53'248;
constexpr int kBatch = 4096, kSlots = 26;
constexpr int64_t kZipfIds = 1'000'000;
constexpr double kZipf = 1.05;
constexpr float kRate = 0.01f;
constexpr size_t kIdBytes = sizeof(int64_t), kRowBytes = kWidth * sizeof(float);

struct TableKind {
  const char* name;
  const char* rule;
  int64_t rows;
};
constexpr TableKind kTables[] = {
    {"rows_1m", "adagrad", 1'000'000}, {"rows_10m", "adagrad", 10'000'000}, {"zipf", "sgd", kZipfIds}};

uint64_t Next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 16;
}

v1::Initializer Uniform() {
  v1::Initializer init;
  init.mutable_uniform()->set_min(-1);
  init.mutable_uniform()->set_max(1);
  return init;
}

v1::OpDesc Update(const TableKind& kind) {
  const std::string t = kind.name;
  if (std::string(kind.rule) == "sgd") {
    return MakeOp("sgd", {{"Param", {t}}, {"Grad", {t + "@GRAD"}}, {"LearningRate", {"lr"}}}, {{"ParamOut", {t}}});
  }
  return MakeOp("adagrad",
                {{"Param", {t}}, {"Grad", {t + "@GRAD"}}, {"LearningRate", {"lr"}}, {"Moment", {t + ".moment"}}},
                {{"ParamOut", {t}}, {"MomentOut", {t + ".moment"}}});
}

v1::Plan BenchPlan() {
  v1::Plan plan;
  plan.set_job("bench");
  plan.set_servers(1);
  plan.set_trainers(1);
  plan.set_lanes(1);
  plan.set_sync(false);
  for (const TableKind& kind : kTables) {
    v1::PlacedTable* const placed = plan.add_tables();
    placed->set_name(kind.name);
    placed->set_width(kWidth);
    placed->set_logical_shards(4096);
    v1::WireFormat format = v1::WIRE_FLOAT32;
    CHECK(v1::WireFormat_Parse(absl::GetFlag(FLAGS_wire), &format)) << absl::GetFlag(FLAGS_wire);
    placed->mutable_wire()->set_pull(format);
    placed->mutable_wire()->set_push(format);
  }
  return plan;
}

ServerOptions BenchServer(ThreadPool* pool) {
  ServerOptions server{.job_name = "bench",
                       .sync = false,
                       .process = "bench:1",
                       .arithmetic = "any",
                       .clock = Clock::Real(),
                       .pool = pool};
  *server.main.mutable_plan() = BenchPlan();
  for (v1::ProgramDesc* program : {&server.main, &server.startup}) {
    v1::BlockDesc* const block = program->add_blocks();
    block->set_index(0);
    v1::VarDesc* const rate = block->add_vars();
    rate->set_name("lr");
    rate->add_dims(1);
    rate->set_persistable(true);
  }
  *server.startup.mutable_blocks(0)->add_ops() =
      MakeOp("fill_constant", {}, {{"Out", {"lr"}}},
             {AttrInts("shape", {1}), AttrType("dtype", v1::FLOAT32), AttrF("value", kRate)});
  std::vector<int> optimize;
  for (const TableKind& kind : kTables) {
    v1::VarDesc* const table = server.main.mutable_blocks(0)->add_vars();
    table->set_name(kind.name);
    table->set_kind(v1::TABLE);
    table->add_dims(-1);
    table->add_dims(kWidth);
    *table->mutable_initializer() = Uniform();
    v1::BlockDesc* const block = server.main.add_blocks();
    block->set_index(server.main.blocks_size() - 1);
    *block->add_ops() = Update(kind);
    optimize.push_back(block->index());
  }
  *server.main.mutable_blocks(0)->add_ops() =
      MakeOp("listen_and_serv", {}, {},
             {AttrI("server_id", 0), AttrI("trainers", 1), AttrBlocks("optimize_blocks", optimize)});
  return server;
}

// ------------------------------------------------------------------------------------------------ bare gRPC, no frames

// Push takes bytes and says nothing; Pull gives as many bytes as the last four bytes of the request say, from recycled
// memory.
class BareService : public v1::ParameterServer::WithRawCallbackMethod_Push<
                        v1::ParameterServer::WithRawCallbackMethod_Pull<v1::ParameterServer::Service>> {
 public:
  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                 grpc::ByteBuffer* out) override {
    *out = ToByteBuffer({Slice::Own("ok")});
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                                 grpc::ByteBuffer* out) override {
    const Slices bytes = FromByteBuffer(*in);
    uint32_t size = 0;
    const Slice& last = bytes.back();
    CHECK_GE(last.size, sizeof(size));
    std::memcpy(&size, last.data + last.size - sizeof(size), sizeof(size));
    *out = ToByteBuffer({buffers_.Get(size).Piece(0, size)});
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  BufferPool buffers_;
};

class BareClient {
 public:
  explicit BareClient(const std::string& endpoint) {
    grpc::ChannelArguments args;
    args.SetMaxReceiveMessageSize(-1);
    args.SetMaxSendMessageSize(-1);
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    args.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kGrpcMaxFrame);
    args.SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, kGrpcReadChunk);
    stub_ = std::make_unique<Stub>(grpc::CreateCustomChannel(endpoint, ChannelCredentials(), args));
  }
  // Returns the bytes of the answer.
  size_t Call(const char* method, const WireBuffer& request) {
    grpc::ClientContext context;
    grpc::ByteBuffer in = ToByteBuffer({request.Piece(0, request.size)}), out;
    std::promise<grpc::Status> done;
    stub_->UnaryCall(&context, absl::StrCat("/weir.v1.ParameterServer/", method), {}, &in, &out,
                     [&](grpc::Status status) { done.set_value(std::move(status)); });
    const grpc::Status status = done.get_future().get();
    CHECK(status.ok()) << status.error_message();
    return out.Length();
  }

 private:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;
  std::unique_ptr<Stub> stub_;
};

// ------------------------------------------------------------------------------------------------------ server process

int RunServer(int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ThreadPool pool("bench-server", ComputeThreads(0));
  auto core = ServerCore::Create(BenchServer(&pool));
  CHECK(core.ok()) << core.status();
  auto server = GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = core->get()});
  CHECK(server.ok()) << server.status();
  BareService bare;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kGrpcMaxFrame);
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kGrpcReadChunk);
  int bare_port = 0;
  builder.AddListeningPort("127.0.0.1:0", ServerCredentials(), &bare_port);
  builder.RegisterService(&bare);
  const std::unique_ptr<grpc::Server> bare_server = builder.BuildAndStart();
  CHECK(bare_server != nullptr);
  const int ports[2] = {(*server)->port(), bare_port};
  CHECK_EQ(write(fd, ports, sizeof(ports)), static_cast<ssize_t>(sizeof(ports)));
  // Ends with the client.
  while (true) {
    (*core)->Tick();
    absl::SleepFor(absl::Milliseconds(100));
  }
}

// -------------------------------------------------------------------------------------------------------------- client

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Cpu(clockid_t clock) {
  timespec t;
  CHECK_EQ(clock_gettime(clock, &t), 0);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

class Times {
 public:
  void Add(double s) { all_.push_back(s); }
  template <typename Fn>
  double Of(const Fn& fn) {
    const double start = Now();
    fn();
    const double s = Now() - start;
    Add(s);
    return s;
  }
  double Quantile(double q) {
    std::sort(all_.begin(), all_.end());
    return all_[std::min(all_.size() - 1, static_cast<size_t>(q * static_cast<double>(all_.size())))];
  }
  double median() { return Quantile(0.5); }
  size_t count() const { return all_.size(); }

 private:
  std::vector<double> all_;
};

std::unique_ptr<SparseTable> LocalTable(const TableKind& kind) {
  const v1::OpDesc update = Update(kind);
  auto rule = RowRuleRegistry::Global().Make(update);
  CHECK(rule.ok()) << rule.status();
  auto table = SparseTable::Create({.name = kind.name,
                                    .width = kWidth,
                                    .initializer = RowInitializer(Uniform(), v1::ProgramDesc().seed(), kind.name),
                                    .rule = *std::move(rule)});
  CHECK(table.ok()) << table.status();
  return *std::move(table);
}

std::vector<int64_t> DistinctIds(int64_t of, uint64_t* random) {
  std::vector<int64_t> ids;
  std::vector<bool> seen(static_cast<size_t>(of));
  while (static_cast<int64_t>(ids.size()) < kRows) {
    const int64_t id = static_cast<int64_t>(Next(random) % static_cast<uint64_t>(of));
    if (seen[static_cast<size_t>(id)]) continue;
    seen[static_cast<size_t>(id)] = true;
    ids.push_back(id);
  }
  return ids;
}

std::vector<int64_t> Sorted(std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end(),
            [](int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); });
  return ids;
}

struct Bench {
  Bench(int port, int bare_port, pid_t server)
      : pool("bench-client", PoolWorkers(0)), bare(absl::StrCat("127.0.0.1:", bare_port)) {
    CHECK_EQ(clock_getcpuclockid(server, &server_clock), 0);
    if (absl::GetFlag(FLAGS_no_wire)) {
      std::vector<ServerOptions> servers;
      servers.push_back(BenchServer(&pool));
      transport = *InProcessServers::Create(std::move(servers), /*tick_thread=*/true, /*check_payloads=*/true);
    } else {
      v1::Cluster network;
      network.set_shared_memory(absl::GetFlag(FLAGS_shared_memory));
      transport =
          *MakeGrpcTransport({.endpoints = {absl::StrCat("127.0.0.1:", port)},
                              .unix_sockets = absl::GetFlag(FLAGS_unix_sockets) || absl::GetFlag(FLAGS_shared_memory),
                              .network = network});
    }
    auto made = Client::Create({.plan = BenchPlan(),
                                .job_name = "bench",
                                .process = "bench:2",
                                .arithmetic = "any",
                                .transport = transport.get(),
                                .clock = Clock::Real(),
                                .pool = &pool});
    CHECK(made.ok()) << made.status();
    client = *std::move(made);
    CHECK(client->Join().ok());
  }

  void Begin() { CHECK(client->steps().BeginStep(step++, false).ok()); }
  void Pull(const std::string& table, const std::vector<int64_t>& ids, float* out) {
    const ParamChannel::TableRows rows{table, kWidth, &ids, out};
    const absl::Status status = client->steps().PullRows({&rows, 1});
    CHECK(status.ok()) << status;
  }
  void Push(const std::string& table, const SelectedRows& grads, int64_t samples) {
    const ParamChannel::LaneRows lane{0, &grads};
    const absl::Status status = client->steps().SendRows({table, -1, 0}, kWidth, {&lane, 1});
    CHECK(status.ok()) << status;
    const absl::Status finished = client->steps().FinishSends(samples, v1::APPLY);
    CHECK(finished.ok()) << finished;
  }

  ThreadPool pool;
  BareClient bare;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Client> client;
  clockid_t server_clock;
  int64_t step = 0;
};

// Gradients for all ids of a pull, in its order.
void SetGradients(const std::vector<int64_t>& ids, float value, SelectedRows* grads) {
  grads->ids = ids;
  grads->merged = grads->present = true;
  grads->step_rows.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) grads->step_rows[i] = static_cast<int32_t>(i);
  grads->values.Resize(v1::FLOAT32, {static_cast<int64_t>(ids.size()), kWidth});
  float* const to = grads->values.data<float>();
  for (size_t i = 0; i < ids.size() * kWidth; ++i) to[i] = value * static_cast<float>(1 + i % 7);
}

void Print(const char* what, Times& times, double rows, const std::string& more = "") {
  const double s = times.median();
  std::printf("  %-34s %7.3f ms  %6.1f M rows/s%s\n", what, 1e3 * s, rows / s / 1e6, more.c_str());
}

std::string Rule(double got, double bare, double table) {
  const double rule = bare + table;  // seconds a call
  char text[160];
  std::snprintf(text, sizeof(text), "  %.0f %% of the rule's %.1f M rows/s", 100 * rule / got, kRows / rule / 1e6);
  return text;
}

// To the bit, or with a lossy format nearly.
bool Same(const std::vector<float>& got, const std::vector<float>& expected, size_t n) {
  if (absl::GetFlag(FLAGS_wire) == "WIRE_FLOAT32")
    return std::memcmp(got.data(), expected.data(), n * sizeof(float)) == 0;
  for (size_t i = 0; i < n; ++i) {
    if (!(std::abs(got[i] - expected[i]) < 0.02f)) return false;
  }
  return true;
}

// Every row exists, with Adagrad state, on the server and in the local table.
void Fill(Bench& bench, const TableKind& kind, SparseTable& local) {
  SelectedRows grads;
  std::vector<float> rows(kRows * kWidth);
  for (int64_t begin = 0; begin < kind.rows; begin += kRows) {
    std::vector<int64_t> ids;
    for (int64_t id = begin; id < std::min(kind.rows, begin + kRows); ++id) ids.push_back(id);
    ids = Sorted(std::move(ids));
    SetGradients(ids, 0.01f, &grads);
    bench.Begin();
    bench.Pull(kind.name, ids, rows.data());
    bench.Push(kind.name, grads, 1);
    CHECK(local.Update(ids, grads.values.data<float>(), 1, kRate, nullptr).ok());
  }
  CHECK_EQ(local.size(), kind.rows);
}

// Checks that rows pulled over the wire equal, bit by bit, the result of the same updates made locally.
void Check(Bench& bench, const TableKind& kind, SparseTable& local, uint64_t* random) {
  const std::vector<int64_t> ids = DistinctIds(kind.rows, random);
  std::vector<float> rows(kRows * kWidth), expected(kRows * kWidth);
  SelectedRows grads;
  for (int i = 0; i < 2; ++i) {
    bench.Begin();
    bench.Pull(kind.name, ids, rows.data());
    CHECK(local.Pull(ids, false, expected.data(), nullptr).ok());
    CHECK(Same(rows, expected, rows.size())) << kind.name << ": wrong rows";
    SetGradients(ids, 0.02f, &grads);
    bench.Push(kind.name, grads, 4);
    CHECK(local.Update(ids, grads.values.data<float>(), 4, kRate, nullptr).ok());
  }
}

void RowsBench(Bench& bench, const TableKind& kind) {
  std::unique_ptr<SparseTable> local = LocalTable(kind);
  Fill(bench, kind, *local);
  uint64_t random = 7;
  Check(bench, kind, *local, &random);

  const size_t n = static_cast<size_t>(kRows);
  std::vector<float> out(n * kWidth), flat(static_cast<size_t>(kind.rows) * kWidth, 1.0f), copy(n * kWidth);
  BufferPool buffers;
  WireBuffer pull_request = buffers.Get(n * kIdBytes), push_request = buffers.Get(n * (kIdBytes + kRowBytes));
  std::memset(push_request.data, 1, push_request.size);
  std::memset(pull_request.data, 1, pull_request.size);
  const uint32_t reply_bytes = static_cast<uint32_t>(n * kRowBytes);
  std::memcpy(pull_request.data + pull_request.size - sizeof(reply_bytes), &reply_bytes, sizeof(reply_bytes));
  SelectedRows grads;

  Times pull, push, bare_pull, bare_push, table_pull, table_push, gather, memory;
  double client_cpu[2] = {}, server_cpu[2] = {};
  const auto timed = [&](int which, Times& times, const auto& fn) {
    const double client0 = Cpu(CLOCK_PROCESS_CPUTIME_ID), server0 = Cpu(bench.server_clock);
    times.Of(fn);
    client_cpu[which] += Cpu(CLOCK_PROCESS_CPUTIME_ID) - client0;
    server_cpu[which] += Cpu(bench.server_clock) - server0;
  };
  const int repetitions = absl::GetFlag(FLAGS_repetitions);
  for (int r = -5; r < repetitions; ++r) {
    if (r == 0) {
      pull = push = bare_pull = bare_push = table_pull = table_push = gather = memory = Times();
      for (double* cpu : {client_cpu, server_cpu}) cpu[0] = cpu[1] = 0;
    }
    std::vector<int64_t> ids = DistinctIds(kind.rows, &random);
    bare_pull.Of([&] { CHECK_EQ(bench.bare.Call("Pull", pull_request), reply_bytes); });
    SetGradients(ids, 0.01f, &grads);
    bench.Begin();
    timed(0, pull, [&] { bench.Pull(kind.name, ids, out.data()); });
    timed(1, push, [&] { bench.Push(kind.name, grads, 4); });
    bare_push.Of([&] { bench.bare.Call("Push", push_request); });
    ids = Sorted(DistinctIds(kind.rows, &random));
    table_pull.Of([&] { CHECK(local->Pull(ids, false, out.data(), nullptr).ok()); });
    ids = Sorted(DistinctIds(kind.rows, &random));
    table_push.Of([&] { CHECK(local->Update(ids, grads.values.data<float>(), 4, kRate, nullptr).ok()); });
    ids = DistinctIds(kind.rows, &random);
    gather.Of([&] {
      for (size_t i = 0; i < n; ++i) {
        if (i + 16 < n) __builtin_prefetch(&flat[static_cast<size_t>(ids[i + 16]) * kWidth]);
        std::memcpy(&out[i * kWidth], &flat[static_cast<size_t>(ids[i]) * kWidth], kRowBytes);
      }
    });
    memory.Of([&] { std::memcpy(copy.data(), out.data(), n * kRowBytes); });
  }
  std::printf("%s rows a call, table of %lld rows, medians of %d\n", std::to_string(kRows).c_str(),
              static_cast<long long>(kind.rows), repetitions);
  const double rows = static_cast<double>(kRows);
  Print("memory copy of the rows", memory, rows);
  Print("random gather, flat array", gather, rows);
  const auto cpu = [&](int which) {
    char text[100];
    std::snprintf(text, sizeof(text), "; processor ms: client %.2f, server %.2f", 1e3 * client_cpu[which] / repetitions,
                  1e3 * server_cpu[which] / repetitions);
    return std::string(text);
  };
  Print("pull: bare ByteBuffers", bare_pull, rows);
  Print("pull: table in this process", table_pull, rows);
  Print("pull: over the wire", pull, rows, Rule(pull.median(), bare_pull.median(), table_pull.median()) + cpu(0));
  Print("push: bare ByteBuffers", bare_push, rows);
  Print("push: table in this process", table_push, rows);
  Print("push: over the wire, Adagrad", push, rows,
        Rule(push.median(), bare_push.median(), table_push.median()) + cpu(1));
  std::fflush(stdout);
}

// ------------------------------------------------------------------------------------------------------------ raw step

class Zipf {
 public:
  Zipf() : below_(kZipfIds) {
    double sum = 0;
    for (int64_t i = 0; i < kZipfIds; ++i)
      below_[static_cast<size_t>(i)] = sum += std::pow(static_cast<double>(i + 1), -kZipf);
  }
  int64_t Draw(uint64_t* random) const {
    const double u = static_cast<double>(Next(random) % (uint64_t{1} << 40)) / static_cast<double>(uint64_t{1} << 40) *
                     below_.back();
    return std::upper_bound(below_.begin(), below_.end(), u) - below_.begin();
  }

 private:
  std::vector<double> below_;
};

void StepBench(Bench& bench) {
  const TableKind& kind = kTables[2];
  std::unique_ptr<SparseTable> local = LocalTable(kind);
  Fill(bench, kind, *local);
  const Zipf zipf;
  uint64_t random = 17;
  const size_t positions = size_t{kBatch} * kSlots;
  std::vector<std::vector<int64_t>> batches(16);
  for (std::vector<int64_t>& batch : batches) {
    for (size_t i = 0; i < positions; ++i) batch.push_back(zipf.Draw(&random));
  }

  IdDeduper deduper;
  std::vector<int32_t> index(positions);
  std::vector<int64_t> ids;
  std::vector<float> rows(positions * kWidth), expanded(positions * kWidth), position_grads(positions * kWidth);
  SelectedRows grads;
  grads.merged = grads.present = true;
  for (size_t i = 0; i < position_grads.size(); ++i) position_grads[i] = 0.001f * static_cast<float>(1 + i % 5);

  for (const bool by_position : {false, true}) {
    Times total, dedup, pull, expand, merge, push;
    double distinct = 0;
    const auto step = [&](const std::vector<int64_t>& batch) {
      const double start = Now();
      dedup.Of([&] {
        ids.clear();
        deduper.Start(static_cast<int64_t>(positions));
        deduper.Add(batch.data(), static_cast<int64_t>(positions), index.data(), &ids);
      });
      bench.Begin();
      pull.Of([&] { bench.Pull(kind.name, ids, rows.data()); });
      grads.ids = ids;
      grads.step_rows.resize(ids.size());
      for (size_t i = 0; i < ids.size(); ++i) grads.step_rows[i] = static_cast<int32_t>(i);
      grads.values.Resize(v1::FLOAT32, {static_cast<int64_t>(ids.size()), kWidth});
      float* const to = grads.values.data<float>();
      if (by_position) {
        expand.Of([&] {
          for (size_t i = 0; i < positions; ++i) {
            std::memcpy(&expanded[i * kWidth], &rows[static_cast<size_t>(index[i]) * kWidth], kRowBytes);
          }
        });
        merge.Of([&] {
          int32_t next =
              0;  // places are numbered in order of first appearance: that gradient is stored, later ones are added
          for (size_t i = 0; i < positions; ++i) {
            float* const sum = to + static_cast<size_t>(index[i]) * kWidth;
            const float* const from = &position_grads[i * kWidth];
            if (index[i] == next) {
              ++next;
              std::memcpy(sum, from, kRowBytes);
            } else {
              for (int j = 0; j < kWidth; ++j) sum[j] += from[j];
            }
          }
        });
      }
      push.Of([&] { bench.Push(kind.name, grads, kBatch); });
      total.Add(Now() - start);
      distinct += static_cast<double>(ids.size());
    };
    // Without positions gradients are what was there before.
    grads.values.Resize(v1::FLOAT32, {static_cast<int64_t>(positions), kWidth});
    for (float& v : grads.values.span<float>()) v = 0.001f;
    const int repetitions = std::max(60, absl::GetFlag(FLAGS_repetitions));
    std::vector<float> expected(positions * kWidth);
    Client::Counters before;
    for (int r = -8; r < repetitions; ++r) {
      if (r == 0) {
        total = dedup = pull = expand = merge = push = Times();
        distinct = 0;
        before = bench.client->counters();
      }
      step(batches[static_cast<size_t>(r + 8) % batches.size()]);
      // Outside the timer, the same arithmetic in this process.
      CHECK(local->Pull(ids, false, expected.data(), nullptr).ok());
      CHECK(Same(rows, expected, ids.size() * kWidth)) << "wrong rows";
      CHECK(local->Update(ids, grads.values.data<float>(), kBatch, kRate, nullptr).ok());
    }
    std::printf("raw step%s: batch %d x %d ids, Zipf %.2f over %lld, width %d, %.0f distinct ids, medians of %d\n",
                by_position ? ", with rows at positions and gradients merged" : "", kBatch, kSlots, kZipf,
                static_cast<long long>(kZipfIds), kWidth, distinct / repetitions, repetitions);
    const auto line = [](const char* what, Times& times) {
      if (times.count() == 0) return;
      std::printf("  %-34s p50 %7.3f ms  p99 %7.3f ms\n", what, 1e3 * times.median(), 1e3 * times.Quantile(0.99));
    };
    line("de-duplication", dedup);
    line("pull", pull);
    line("rows to positions", expand);
    line("merge of gradients", merge);
    line("push and update", push);
    line("step", total);
    const Client::Counters after = bench.client->counters();
    std::printf("  %-34s %.0f samples/s; bytes a step: %.0f out, %.0f in\n", "", kBatch / total.median(),
                static_cast<double>(after.bytes_sent - before.bytes_sent) / repetitions,
                static_cast<double>(after.bytes_received - before.bytes_received) / repetitions);
    std::fflush(stdout);
  }
}

int Main(char** argv) {
  int fds[2];
  CHECK_EQ(pipe(fds), 0);
  const pid_t server = fork();
  CHECK_GE(server, 0);
  if (server == 0) {
    close(fds[0]);
    const std::string flag = absl::StrCat("--server_fd=", fds[1]);
    execl("/proc/self/exe", argv[0], flag.c_str(), nullptr);
    _exit(127);
  }
  close(fds[1]);
  int ports[2] = {};
  CHECK_EQ(read(fds[0], ports, sizeof(ports)), static_cast<ssize_t>(sizeof(ports))) << "the server did not start";
  {
    Bench bench(ports[0], ports[1], server);
    const std::string only = absl::GetFlag(FLAGS_only);
    if (only.empty() || only == "step") StepBench(bench);
    if (only.empty() || only == "rows") {
      RowsBench(bench, kTables[0]);
      if (absl::GetFlag(FLAGS_large)) RowsBench(bench, kTables[1]);
    }
    CHECK(bench.client->member().Done().ok());
  }
  kill(server, SIGTERM);
  waitpid(server, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  absl::ParseCommandLine(argc, argv);
  const int fd = absl::GetFlag(FLAGS_server_fd);
  return fd >= 0 ? weir::RunServer(fd) : weir::Main(argv);
}
