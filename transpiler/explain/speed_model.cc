#include "transpiler/explain/speed_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/runtime/lane_tree.h"
#include "transpiler/job/modes.h"

namespace weir {
namespace {

constexpr double kNs = 1e-9;
// Bytes on a link for a byte of a message: headers of HTTP/2, TCP, IP and Ethernet in packets of 1,500 bytes.
constexpr double kHeaders = 1.05;

// Work of one process in a phase.
struct Work {
  double cpu = 0;      // seconds of processor time
  double seconds = 0;  // by the clock, on as many threads as work on it, were the process alone
  double out = 0;      // bytes
  double in = 0;
};

// One phase: the busiest trainer, the busiest server, and all processes together.
struct Phase {
  std::string name;
  Work trainer, server;
  double all_cpu = 0;
  double lanes = 0;  // of trainer.seconds: lanes, which are many and independent
  double pieces = 1;
  double round_trips = 0;
  // Trainers that have ended this phase begin the next one, which needs the servers' links the other way.
  bool runs_into_next = false;
};

Work Busiest(const Work& a, const Work& b) {
  return {.cpu = std::max(a.cpu, b.cpu),
          .seconds = std::max(a.seconds, b.seconds),
          .out = std::max(a.out, b.out),
          .in = std::max(a.in, b.in)};
}

// Resources that may hold up a step, as SpeedPrediction.bottleneck names them.
enum Resource { kTrainers, kServers, kTrainerLinks, kServerLinks, kMachine, kRoundTrips, kResources };
constexpr std::array<const char*, kResources> kResourceNames = {"trainers' processors", "servers' processors",
                                                                "links of trainers",    "links of servers",
                                                                "the machine's cores",  "round trips"};

class Model {
 public:
  Model(const v1::Calibration& c, const Machines& machines, const v1::JobConfig& job, const v1::Plan& plan,
        const v1::Explanation& explained)
      : c_(c),
        wire_(machines.link.has_value() ? c.tcp() : c.unix_socket()),
        machines_(machines),
        job_(job),
        plan_(plan),
        steps_(StepFactsOf(plan.sync())),
        inside_(TrainerAround(plan, 0) == 0),
        e_(explained),
        cores_(std::max(1, c.cores())),
        trainers_(std::max(1, plan.trainers())),
        trainers_per_host_(machines.one_machine ? 1 : std::clamp(machines.trainers_per_host, 1, trainers_)),
        merged_(explained.has_merged_hosts()),
        threads_(Threads()),
        away_(inside_ ? 1 - 1.0 / trainers_ : 1) {}

  v1::SpeedPrediction Predict() {
    v1::SpeedPrediction p;
    p.set_processor(c_.processor());
    p.set_cores(cores_);
    p.set_one_machine(machines_.one_machine);
    if (trainers_per_host_ > 1) p.set_trainers_per_host(trainers_per_host_);
    if (machines_.link.has_value()) {
      p.set_link_gbit(machines_.link->gbit);
      p.set_link_us(machines_.link->us);
    }
    if (const std::string refusal = Refusal(); !refusal.empty()) {
      p.set_refusal(refusal);
      return p;
    }
    double step = 0;
    std::array<double, kResources> held_up = {}, busy = {};
    const std::vector<Phase> phases = Phases();
    for (const Phase& phase : phases) {
      v1::SpeedPhase* to = p.add_phase();
      std::array<double, kResources> stages = Stages(phase);
      for (size_t r = 0; r < kResources; ++r) busy[r] += stages[r];
      if (!steps_.servers_serve_all) {
        stages[kServers] /= trainers_;
        stages[kServerLinks] /= trainers_;
        stages[kMachine] = 0;
      }
      Fill(phase, stages, to);
      step += to->seconds();
      const size_t longest = static_cast<size_t>(std::max_element(stages.begin(), stages.end()) - stages.begin());
      held_up[longest] += to->seconds() - stages[kRoundTrips];
      held_up[kRoundTrips] += stages[kRoundTrips];
      p.set_processor_seconds(p.processor_seconds() + phase.all_cpu);
    }
    const Phase reading = Reading(phases, step);
    p.set_processor_seconds(p.processor_seconds() + reading.all_cpu);
    if (reading.trainer.seconds > 0) {
      v1::SpeedPhase* to = p.add_phase();
      to->set_name(reading.name);
      to->set_trainer(reading.trainer.seconds);
      to->set_seconds(reading.trainer.seconds);
      step += reading.trainer.seconds;
      held_up[machines_.one_machine ? kMachine : kTrainers] += reading.trainer.seconds;
    }
    // The busiest resource takes a step of every trainer.
    for (const Resource r : {kServers, kServerLinks, kMachine}) {
      if (busy[r] <= step) continue;
      step = held_up[r] = busy[r];
    }
    p.set_step_seconds(step);
    const double examples = static_cast<double>(plan_.batch_size()) * Batches();
    p.set_examples_per_second(step > 0 ? examples / step : 0);
    p.set_bottleneck(
        kResourceNames[static_cast<size_t>(std::max_element(held_up.begin(), held_up.end()) - held_up.begin())]);
    return p;
  }

 private:
  double Batches() const { return std::max(1, job_.train().accumulate_steps()); }

  // Computing threads of a trainer.
  int Threads() const {
    if (job_.train().threads() > 0) return job_.train().threads();
    return std::max(1, cores_ / (machines_.one_machine ? trainers_ : trainers_per_host_));
  }

  std::string Refusal() const {
    if (job_.train().device() == v1::Train::CUDA) return "train.device: CUDA; the calibration is of processors";
    for (const JobMode* mode : ModesOf(job_.distribute())) {
      if (mode->against_prediction == nullptr) continue;
      return absl::StrCat("distribute.", mode->setting, ": ", mode->against_prediction);
    }
    return "";
  }

  // Work that all cores of a machine share takes longer than work on one.
  double Crowding() const {
    return threads_ > 1 || trainers_per_host_ > 1 || machines_.one_machine ? std::max(1.0, c_.crowding()) : 1;
  }

  // Processor time of one end for messages and bytes, in seconds.
  double WireCpu(const v1::Flow& flow) const { return WireCpu(flow, wire_); }
  static double WireCpu(const v1::Flow& flow, const v1::WireCosts& wire) {
    return kNs * 0.5 * (wire.message_ns() * flow.messages() + wire.byte_ns() * (flow.bytes_out() + flow.bytes_in()));
  }
  // Threads of gRPC that serve a process.
  double ServingThreads() const { return std::min<double>(cores_, std::clamp(cores_ / 2, 2, 16)); }

  // Moving and updating of values takes longer than its parts alone.
  double Moving() const { return Crowding() * std::max(1.0, c_.moving()); }

  // Work of moving values: `packing` seconds, and the messages. One thread does most of both; trainers of a host share
  // its cores and its link.
  Work TrainerMoves(double packing, const v1::Flow& flow, double away) const {
    const double cpu = Moving() * (packing + away * WireCpu(flow));
    const double on_link = away * trainers_per_host_;
    return {.cpu = cpu, .seconds = OnHost(cpu), .out = on_link * flow.bytes_out(), .in = on_link * flow.bytes_in()};
  }
  // The same of a trainer that reaches the one that merges through shared memory.
  Work MemberMoves(double packing, const v1::Flow& flow) const {
    const double cpu = Moving() * (packing + WireCpu(flow, c_.unix_socket()));
    return {.cpu = cpu, .seconds = OnHost(cpu)};
  }
  // Returns the time of work that one thread of each trainer of a host does.
  double OnHost(double cpu) const { return std::max(cpu, trainers_per_host_ * cpu / cores_); }
  Work ServerMoves(double work, const v1::Flow& flow) const {
    const double cpu = Moving() * (work + away_ * WireCpu(flow));
    // A server sends what a trainer receives.
    return {
        .cpu = cpu, .seconds = cpu / ServingThreads(), .out = away_ * flow.bytes_in(), .in = away_ * flow.bytes_out()};
  }

  // Returns the flow without one message for each of `peers`, which goes with another one.
  static v1::Flow Joined(v1::Flow flow, int peers) {
    flow.set_messages(std::max(0.0, flow.messages() - peers));
    return flow;
  }

  // Returns the trainers of a host together, for the flow `of`.
  template <class Of>
  v1::Flow MembersFlow(const v1::MergedHost& host, const Of& of) const {
    v1::Flow sum;
    for (const v1::ExplainedTrainer& t : e_.trainer()) {
      const int first = std::max(t.first(), host.first_trainer());
      const int members = std::min(t.first() + t.count(), host.first_trainer() + host.trainers()) - first;
      if (members <= 0) continue;
      const v1::Flow& one = of(t.step());
      sum.set_messages(sum.messages() + members * one.messages());
      sum.set_bytes_out(sum.bytes_out() + members * one.bytes_out());
      sum.set_bytes_in(sum.bytes_in() + members * one.bytes_in());
      sum.set_rows(sum.rows() + members * one.rows());
    }
    return sum;
  }

  // Adds the work of the trainer that merges for its host to a phase: messages of the others through shared memory,
  // `merging` seconds, messages to and from servers. Its threads are as many as those of a server.
  template <class Of, class Merging>
  void AddMerging(const Of& of, const Merging& merging, bool joined, Phase* phase) const {
    Work busiest;
    for (const v1::MergedHost& host : e_.merged_hosts().host()) {
      const v1::Flow members = MembersFlow(host, of);
      const v1::Flow& flow = of(host.step());
      const double others = 1 - 1.0 / std::max(1, host.trainers());  // its own messages stay in its process
      const double cpu = Moving() * (merging(host, members) + others * WireCpu(members, c_.unix_socket()) +
                                     WireCpu(joined ? Joined(flow, plan_.servers()) : flow));
      busiest = Busiest(
          busiest, {.cpu = cpu, .seconds = cpu / ServingThreads(), .out = flow.bytes_out(), .in = flow.bytes_in()});
      phase->all_cpu += host.count() * cpu;
      phase->pieces = std::max(phase->pieces, flow.messages() / std::max(1, plan_.servers()));
    }
    phase->trainer.cpu += busiest.cpu / trainers_per_host_;  // in the mean of its host
    phase->trainer.seconds += busiest.seconds;
    phase->trainer.out = busiest.out;
    phase->trainer.in = busiest.in;
  }

  // Adds the work of every trainer and server in the flow `of` to a phase. `merging`: what it takes to merge the flows
  // of a host's trainers. `joined`: one message of each pair of processes goes with one of another phase.
  template <class Of, class TrainerPacking, class ServerWork, class Merging>
  Phase Moves(const char* name, const Of& of, const TrainerPacking& packing, const ServerWork& work,
              const Merging& merging, bool joined = false) const {
    Phase phase{.name = name};
    for (const v1::ExplainedTrainer& t : e_.trainer()) {
      const v1::Flow& all = of(t.step());
      const v1::Flow flow = joined ? Joined(all, plan_.servers()) : all;
      const Work one = merged_ ? MemberMoves(packing(t), flow) : TrainerMoves(packing(t), flow, away_);
      phase.trainer = Busiest(phase.trainer, one);
      phase.all_cpu += t.count() * one.cpu;
      phase.pieces = std::max(phase.pieces, all.messages() / std::max(1, plan_.servers()));
    }
    if (merged_) AddMerging(of, merging, joined, &phase);
    const int senders = merged_ ? e_.merged_hosts().hosts() : trainers_;
    for (const v1::ExplainedServer& s : e_.server()) {
      const v1::Flow& flow = of(s.step());
      const Work one = ServerMoves(work(s), joined ? Joined(flow, senders) : flow);
      phase.server = Busiest(phase.server, one);
      phase.all_cpu += one.cpu;
    }
    return phase;
  }

  double LaneSeconds(const v1::ExplainedTrainer& t) const {
    return Crowding() * kNs *
           (c_.trainer().lane_ns() + c_.trainer().example_ns() * static_cast<double>(t.lane_batch()));
  }

  Phase Compute() const {
    Phase phase{.name = "compute"};
    for (const v1::ExplainedTrainer& t : e_.trainer()) {
      const double lane = LaneSeconds(t) * Batches();
      const double rounds = std::ceil(static_cast<double>(t.lanes()) / threads_);
      const Work one{.cpu = t.lanes() * lane,
                     .seconds = std::max(rounds, trainers_per_host_ * t.lanes() / static_cast<double>(cores_)) * lane};
      phase.trainer = Busiest(phase.trainer, one);
      phase.all_cpu += t.count() * one.cpu;
    }
    phase.lanes = phase.trainer.seconds;
    return phase;
  }

  // Processor time of reading the batches of one trainer.
  double ReadingSeconds(const v1::ExplainedTrainer& t) const {
    return Crowding() * kNs * c_.trainer().read_ns() * Batches() * t.lanes() * static_cast<double>(t.lane_batch());
  }

  // Threads that read fill what the phases leave of the cores; returns what does not fit.
  Phase Reading(const std::vector<Phase>& phases, double step) const {
    Phase reading{.name = "reading"};
    for (const v1::ExplainedTrainer& t : e_.trainer()) {
      const double cpu = ReadingSeconds(t);
      reading.trainer.cpu = std::max(reading.trainer.cpu, cpu);
      reading.all_cpu += t.count() * cpu;
    }
    double busy = machines_.one_machine ? reading.all_cpu : trainers_per_host_ * reading.trainer.cpu;
    for (const Phase& phase : phases)
      busy += machines_.one_machine ? phase.all_cpu : trainers_per_host_ * phase.trainer.cpu;
    reading.trainer.seconds = std::max(0.0, busy / cores_ - step);
    return reading;
  }

  // Nodes of the lane tree that trainers [begin, end) push.
  double NodesOf(int begin, int end) const {
    size_t nodes = 0;
    for (int t = begin; t < end; ++t) nodes += AlignedNodes(LanesOfTrainer(plan_.lanes(), trainers_, t)).size();
    return static_cast<double>(nodes);
  }
  // Nodes that all trainers or hosts push: as many gradients of each block arrive at its server.
  double PushedNodes() const {
    if (!merged_) return NodesOf(0, trainers_);
    double nodes = 0;
    for (const v1::MergedHost& host : e_.merged_hosts().host()) nodes += host.count() * host.nodes();
    return nodes;
  }

  static double DenseBytes(const v1::ExplainedServer& s) {
    double dense = 0;
    for (const v1::ExplainedBlock& block : s.block()) {
      if (!block.sparse_gradient()) dense += static_cast<double>(block.bytes());
    }
    return dense;
  }

  // Reading, adding and packing of what the trainers of a host push.
  double MergingOfPushes(const v1::MergedHost& host, const v1::Flow& members) const {
    double dense = 0;
    for (const v1::ExplainedServer& s : e_.server()) dense += DenseBytes(s);
    const double nodes = NodesOf(host.first_trainer(), host.first_trainer() + host.trainers());
    const v1::ServerCosts& costs = c_.server();
    return kNs * (costs.push_byte_ns() * members.bytes_out() + costs.merge_row_ns() * members.rows() +
                  costs.merge_byte_ns() * nodes * dense + c_.trainer().push_byte_ns() * host.step().push().bytes_out());
  }

  // Updates of the dense blocks and rows of one owner.
  double UpdateSeconds(const v1::ExplainedServer& s, double pushed_rows) const {
    const double dense = DenseBytes(s);
    const v1::ServerCosts& costs = c_.server();
    return Moving() * kNs *
           (costs.merge_row_ns() * pushed_rows + costs.update_row_ns() * s.rows_updated() +
            (costs.merge_byte_ns() * PushedNodes() + costs.update_byte_ns()) * dense);
  }

  Phase Updates() const {
    Phase phase{.name = "update"};
    for (const v1::ExplainedServer& s : e_.server()) {
      const double cpu = UpdateSeconds(s, s.step().push().rows());
      phase.server = Busiest(phase.server, {.cpu = cpu, .seconds = cpu / cores_});
      phase.all_cpu += cpu;
    }
    if (e_.has_all_reduced()) {
      // Each trainer updates its copy, or its share of it.
      const double all = UpdateSeconds(e_.all_reduced().replica(), 0);
      const double own = e_.all_reduced().share_size() > 0 ? all / trainers_ : all;
      phase.trainer = Busiest(phase.trainer, {.cpu = own, .seconds = own / threads_});
      phase.all_cpu += trainers_ * own;
    }
    return phase;
  }

  // Exchange of gradients among trainers. It begins while the last lanes run backward.
  Phase Exchange() const {
    Phase phase{.name = "exchange"};
    for (const v1::ExplainedTrainer& t : e_.trainer()) {
      const v1::Flow& flow = t.exchange().total();
      Work one = TrainerMoves(kNs * c_.trainer().push_lane_ns() * t.lanes(), flow, 1);
      // Trainers send each other about the same; what stays on a host, or is merged there, is on no link.
      double leaving = (trainers_ - trainers_per_host_) / static_cast<double>(std::max(1, trainers_ - 1));
      const v1::AddedOnHosts& added = e_.all_reduced().added_on_hosts();
      if (added.bytes_apart() > 0) leaving *= added.bytes() / added.bytes_apart();
      one.out *= leaving;
      one.in *= leaving;
      phase.trainer = Busiest(phase.trainer, one);
      phase.all_cpu += t.count() * one.cpu;
      phase.pieces = std::max(phase.pieces, flow.messages() / std::max(1, trainers_ - 1));
    }
    phase.round_trips = 1;
    return phase;
  }

  std::vector<Phase> Phases() const {
    const v1::TrainerCosts& trainer = c_.trainer();
    const v1::ServerCosts& server = c_.server();
    std::vector<Phase> phases;
    Phase rows = Moves(
        "rows", [](const v1::Flows& f) -> const v1::Flow& { return f.pull_rows(); },
        [&](const v1::ExplainedTrainer& t) { return kNs * trainer.row_ns() * t.step().pull_rows().rows(); },
        [&](const v1::ExplainedServer& s) { return kNs * server.row_ns() * s.step().pull_rows().rows(); },
        [&](const v1::MergedHost&, const v1::Flow& members) { return kNs * server.row_ns() * members.rows(); });
    const bool pulls_rows = rows.pieces > 1 || rows.trainer.cpu > 0 || rows.trainer.in > 0;
    rows.round_trips = rows.trainer.in > 0 ? Batches() : 0;
    rows.runs_into_next = steps_.servers_serve_all && !inside_;
    Phase compute = Compute();
    if (job_.distribute().prefetch_rows()) {
      // Rows come while the batch before is computed.
      rows.name = "rows and compute";
      rows.trainer.cpu += compute.trainer.cpu;
      rows.trainer.seconds += compute.trainer.seconds;
      rows.all_cpu += compute.all_cpu;
      rows.lanes = compute.lanes;
      rows.round_trips = 0;
      rows.pieces = kManyPieces;
      phases.push_back(rows);
    } else {
      if (pulls_rows) phases.push_back(rows);
      phases.push_back(compute);
    }
    if (e_.has_all_reduced() && trainers_ > 1) phases.push_back(Exchange());
    Phase push = Moves(
        "push", [](const v1::Flows& f) -> const v1::Flow& { return f.push(); },
        [&](const v1::ExplainedTrainer& t) {
          // In an exchange the lanes have been added up already.
          const double lanes = e_.has_all_reduced() ? 0 : trainer.push_lane_ns() * t.lanes();
          return kNs * (lanes + trainer.push_byte_ns() * t.step().push().bytes_out());
        },
        [&](const v1::ExplainedServer& s) { return kNs * server.push_byte_ns() * s.step().push().bytes_out(); },
        [&](const v1::MergedHost& host, const v1::Flow& members) { return MergingOfPushes(host, members); });
    // A step with norms waits until its pushes have been taken, and for each round of norms.
    push.round_trips = e_.has_norms() ? 1 + e_.norms().messages() / std::max(1, plan_.servers()) : 0;
    if (push.trainer.cpu > 0 || push.trainer.out > 0) phases.push_back(push);
    Phase updates = Updates();
    updates.round_trips = push.trainer.out > 0 ? 1 : 0;
    phases.push_back(updates);
    Phase blocks = Moves(
        "parameters", [](const v1::Flows& f) -> const v1::Flow& { return f.pull_blocks(); },
        [&](const v1::ExplainedTrainer& t) {
          return kNs * trainer.block_byte_ns() * t.step().pull_blocks().bytes_in();
        },
        [&](const v1::ExplainedServer& s) { return kNs * server.block_byte_ns() * s.step().pull_blocks().bytes_in(); },
        [&](const v1::MergedHost&, const v1::Flow& members) {
          return kNs * server.block_byte_ns() * members.bytes_in();
        },
        // ServerSteps::SendPushesWithPulls.
        /*joined=*/steps_.pulls_name_version && !e_.has_norms() && !e_.has_all_reduced());
    // They come with the rows of the next step.
    blocks.runs_into_next = pulls_rows && rows.runs_into_next;
    if (blocks.trainer.cpu > 0 || blocks.trainer.in > 0) phases.push_back(blocks);
    return phases;
  }

  double LinkSeconds(const Work& work) const {
    if (!machines_.link.has_value()) return 0;
    return kHeaders * 8 * std::max(work.out, work.in) / (machines_.link->gbit * 1e9);
  }

  std::array<double, kResources> Stages(const Phase& phase) const {
    std::array<double, kResources> stages = {};
    // Servers inside trainers do their work on the trainers' cores and links.
    const Work server = inside_ ? Work{} : phase.server;
    Work trainer = phase.trainer;
    if (inside_) {
      trainer.seconds += phase.server.seconds;
      trainer.out += phase.server.out;
      trainer.in += phase.server.in;
    }
    stages[kTrainers] = trainer.seconds;
    stages[kServers] = server.seconds;
    stages[kTrainerLinks] = LinkSeconds(trainer);
    stages[kServerLinks] = LinkSeconds(server);
    // Where the servers' links are slower than those of the trainers, some trainers have their values before others:
    // the mean of the first and the last counts.
    if (phase.runs_into_next && stages[kServerLinks] > stages[kTrainerLinks]) {
      stages[kServerLinks] = (stages[kServerLinks] + stages[kTrainerLinks]) / 2;
    }
    if (machines_.one_machine) stages[kMachine] = phase.all_cpu / cores_;
    const double link_us = machines_.link.has_value() ? machines_.link->us : 0;
    const double to_merging = merged_ ? c_.unix_socket().round_trip_ns() : 0;
    stages[kRoundTrips] = phase.round_trips * (2e-6 * link_us + kNs * (wire_.round_trip_ns() + to_merging));
    return stages;
  }

  void Fill(const Phase& phase, const std::array<double, kResources>& stages, v1::SpeedPhase* to) const {
    to->set_name(phase.name);
    to->set_trainer(stages[kTrainers]);
    to->set_server(stages[kServers]);
    to->set_trainer_link(stages[kTrainerLinks]);
    to->set_server_link(stages[kServerLinks]);
    to->set_machine(stages[kMachine]);
    to->set_round_trips(stages[kRoundTrips]);
    const auto flow = [&](double trainer, double link) {
      const double longest = std::max({trainer, stages[kServers], link});
      return longest + (trainer + stages[kServers] + link - longest) / phase.pieces;
    };
    double seconds = flow(stages[kTrainers], std::max(stages[kTrainerLinks], stages[kServerLinks]));
    if (machines_.one_machine) {
      // Work that waits for other work leaves cores idle. Graham's bound for a greedy schedule: all work on all cores,
      // and of the longest chain what is not in it.
      const double chain = (1 - 1.0 / cores_) * flow(std::max(0.0, stages[kTrainers] - phase.lanes), 0);
      seconds = std::max(seconds, stages[kMachine] + chain);
    }
    to->set_seconds(seconds + stages[kRoundTrips]);
  }

  static constexpr double kManyPieces = 1e9;

  const v1::Calibration& c_;
  const v1::WireCosts& wire_;
  const Machines& machines_;
  const v1::JobConfig& job_;
  const v1::Plan& plan_;
  const StepFacts& steps_;
  const bool inside_;  // servers run inside trainers
  const v1::Explanation& e_;
  const int cores_, trainers_;
  const int trainers_per_host_;  // trainers that share a machine, where other machines have others
  const bool merged_;            // trainers of a host merge
  const int threads_;
  const double away_;  // part of what passes between trainers and servers that leaves its process
};

}  // namespace

v1::SpeedPrediction PredictSpeed(const v1::Calibration& calibration, const Machines& machines, const v1::JobConfig& job,
                                 const v1::Plan& plan, const v1::Explanation& explained) {
  return Model(calibration, machines, job, plan, explained).Predict();
}

}  // namespace weir
