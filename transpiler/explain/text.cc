// The explanation for people.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "transpiler/explain/explain.h"
#include "transpiler/job/modes.h"

namespace weir {
namespace {

// Lines of a list, groups of trainers, and trainers with a line each; the JSON form has all.
constexpr int kMostLines = 48, kMostGroups = 8, kMostShares = 8;

// Returns "    and 12 more\n" if a list of so many lines is not printed to the end.
std::string MoreText(int size, int most) { return size > most ? absl::StrCat("    and ", size - most, " more\n") : ""; }

std::string FlowText(const char* what, const v1::Flow& flow, const char* most) {
  if (flow.messages() == 0 && flow.bytes_in() == 0) return "";
  std::string text = absl::StrFormat("    %-12s %6s messages, %10s out, %10s in", what, HumanCount(flow.messages()),
                                     HumanBytes(flow.bytes_out()), HumanBytes(flow.bytes_in()));
  if (flow.rows() > 0) absl::StrAppend(&text, ", ", most, HumanCount(flow.rows()), " rows");
  return text + "\n";
}

std::string FlowsText(const v1::Flows& flows, const char* most) {
  const bool rows = flows.pull_rows().messages() > 0 || flows.push().rows() > 0;
  return absl::StrCat(FlowText("rows", flows.pull_rows(), most), FlowText("gradients", flows.push(), most),
                      FlowText("parameters", flows.pull_blocks(), most),
                      FlowText("together", flows.total(), rows ? most : ""));
}

// Returns the blocks of a server, or of every trainer.
std::string BlocksText(const std::string& owner, const v1::ExplainedServer& server) {
  std::string text =
      absl::StrCat(owner, ": ", HumanCount(static_cast<double>(server.parameters())), " parameters in ",
                   server.block_size(), server.block_size() == 1 ? " block, " : " blocks, ",
                   HumanBytes(static_cast<double>(server.bytes_at_rest())), " at rest with optimizer state\n");
  for (const v1::ExplainedBlock& block : server.block()) {
    absl::StrAppend(&text, "    ", block.name(), " [", absl::StrJoin(block.dims(), ", "), "] ",
                    HumanBytes(static_cast<double>(block.bytes())), " + ",
                    HumanBytes(static_cast<double>(block.state_bytes())), " state",
                    block.sparse_gradient() ? ", gradient by rows" : "", "\n");
  }
  return text;
}

// Returns the parameters of which trainers update a share each.
std::string SharedOutText(const v1::ExplainedServer& replica) {
  struct Parameter {
    std::string name;
    int blocks = 0;
    int64_t bytes = 0, state_bytes = 0;
    bool rows = false;
  };
  std::vector<Parameter> parameters;
  for (const v1::ExplainedBlock& block : replica.block()) {
    if (parameters.empty() || parameters.back().name != block.parameter()) {
      parameters.push_back({.name = block.parameter(), .rows = block.sparse_gradient()});
    }
    Parameter& parameter = parameters.back();
    ++parameter.blocks;
    parameter.bytes += block.bytes();
    parameter.state_bytes += block.state_bytes();
  }
  std::string text =
      absl::StrCat("every trainer: a copy of ", HumanCount(static_cast<double>(replica.parameters())), " parameters, ",
                   HumanBytes(static_cast<double>(replica.bytes_at_rest())), "; their updates are shared out\n");
  const int size = static_cast<int>(parameters.size());
  for (int p = 0; p < std::min(size, kMostLines); ++p) {
    const Parameter& parameter = parameters[static_cast<size_t>(p)];
    absl::StrAppend(&text, "    ", parameter.name, " in ", parameter.blocks,
                    parameter.blocks == 1 ? " block, " : " blocks, ", HumanBytes(static_cast<double>(parameter.bytes)),
                    " + ", HumanBytes(static_cast<double>(parameter.state_bytes)), " state",
                    parameter.rows ? ", gradient by rows" : "", "\n");
  }
  return text + MoreText(size, kMostLines);
}

std::string ShareText(const v1::UpdateShare& share, const char* most) {
  std::string text =
      absl::StrCat("    trainer ", share.trainer(), " updates ", share.blocks(),
                   share.blocks() == 1 ? " block, " : " blocks, ", HumanBytes(static_cast<double>(share.value_bytes())),
                   " + ", HumanBytes(static_cast<double>(share.state_bytes())), " state, ", HumanFlops(share.flops()));
  if (share.rows_updated() > 0) absl::StrAppend(&text, ", ", most, HumanCount(share.rows_updated()), " rows");
  absl::StrAppend(&text, "; at rest with its copy ", HumanBytes(static_cast<double>(share.bytes_at_rest())), "; ",
                  HumanCount(share.step().messages()), " messages, ", HumanBytes(share.step().bytes_out()), " out, ",
                  HumanBytes(share.step().bytes_in()), " in\n");
  return text;
}

// Returns a line for each trainer, or if there are many for those with the least and the most.
std::string SharesText(const v1::AllReduced& all, const char* most) {
  std::string text = "  a trainer updates its share, and exchanges in a step:\n";
  if (all.share_size() <= kMostShares) {
    for (const v1::UpdateShare& share : all.share()) text += ShareText(share, most);
    return text;
  }
  const auto by_state = [](const v1::UpdateShare& a, const v1::UpdateShare& b) {
    return a.state_bytes() < b.state_bytes();
  };
  const auto [least, largest] = std::minmax_element(all.share().begin(), all.share().end(), by_state);
  double state = 0, out = 0;
  for (const v1::UpdateShare& share : all.share()) {
    state += static_cast<double>(share.state_bytes());
    out += share.step().bytes_out();
  }
  absl::StrAppend(&text, "    ", all.share_size(), " trainers, in the mean ", HumanBytes(state / all.share_size()),
                  " state and ", HumanBytes(out / all.share_size()), " out; least state, most state, most out:\n");
  return absl::StrCat(text, ShareText(*least, most), ShareText(*largest, most),
                      ShareText(all.share(all.largest_trainer()), most));
}

std::string UpdatesText(const v1::ExplainedServer& server, const char* most) {
  std::string text = absl::StrCat("    updates      ", HumanFlops(server.flops()));
  if (server.rows_updated() > 0) absl::StrAppend(&text, ", ", most, HumanCount(server.rows_updated()), " rows");
  return text + "\n";
}

std::string ServerText(const v1::ExplainedServer& server, const v1::Explanation& e, const char* most) {
  std::string text = BlocksText(absl::StrCat("server ", server.index()), server);
  for (const v1::ExplainedTable& table : e.table()) {
    absl::StrAppend(&text, "    table ", table.name(), ", ", table.shards(server.index()), " of ",
                    table.logical_shards(), " shards, ", table.row_bytes(), " bytes a row\n");
  }
  absl::StrAppend(&text, "  a step, all trainers:\n", FlowsText(server.step(), most));
  return text + UpdatesText(server, most);
}

// Returns what merging on hosts saves.
template <class Merged>
std::string SavedText(const Merged& merged, bool even) {
  const double part = merged.bytes_apart() > 0 ? merged.bytes() / merged.bytes_apart() : 1;
  return absl::StrCat("merge_hosts: ", merged.hosts(), merged.hosts() == 1 ? " host of " : " hosts of ",
                      even ? "" : "at most ", merged.trainers_per_host(),
                      absl::StrFormat(" trainers: %.0f %% of the bytes without it, ", 100 * part),
                      HumanBytes(merged.bytes()), " instead of ", HumanBytes(merged.bytes_apart()));
}

std::string AllReducedText(const v1::Explanation& e, const char* most) {
  const v1::AllReduced& all = e.all_reduced();
  const bool shared_out = all.share_size() > 0;
  std::string text = shared_out ? SharedOutText(all.replica()) : BlocksText("every trainer", all.replica());
  text += UpdatesText(all.replica(), most);
  if (all.average_every_steps() > 0) {
    absl::StrAppend(&text, "  every ", all.average_every_steps(), " steps the average of all values and state, ",
                    HumanBytes(static_cast<double>(all.dense_bytes())), "\n");
    return text;
  }
  absl::StrAppend(&text, "  a step adds ", HumanBytes(static_cast<double>(all.dense_bytes())),
                  " of dense gradients, in this order:\n");
  for (int b = 0; b < std::min(all.bucket_size(), kMostLines); ++b) {
    const v1::ExplainedBucket& bucket = all.bucket(b);
    const char* const to =
        shared_out ? " of gradient rows to those that update them: " : " of gradient rows to each other trainer: ";
    absl::StrAppend(&text, "    ", bucket.row_width() > 0 ? most : "", HumanBytes(bucket.bytes()),
                    bucket.row_width() > 0 ? to : ": ", BucketParameters(bucket), "\n");
  }
  text += MoreText(all.bucket_size(), kMostLines);
  if (all.has_added_on_hosts()) absl::StrAppend(&text, "  ", AddedText(all.added_on_hosts(), e.trainers()), "\n");
  return shared_out ? text + SharesText(all, most) : text;
}

std::string ExchangeText(const v1::TrainerExchange& exchange, const v1::AllReduced& all, const char* most) {
  const bool rows = exchange.rows().messages() > 0 || exchange.rows().bytes_in() > 0;
  const bool shared_out = exchange.has_trainer();
  std::string text = absl::StrCat("  a step, to and from the other trainers (",
                                  shared_out ? absl::StrCat("trainer ", exchange.trainer(), ", ") : std::string(),
                                  "k = ", exchange.nodes(), "):\n",
                                  FlowText(all.average_every_steps() > 0 ? "averages" : "dense", exchange.dense(), ""));
  if (rows) text += FlowText("rows", exchange.rows(), most);
  absl::StrAppend(&text, FlowText("values", exchange.values(), ""),
                  FlowText("updated rows", exchange.updated_rows(), most), FlowText("headers", exchange.headers(), ""),
                  FlowText("norms", exchange.norms(), ""), FlowText("together", exchange.total(), ""));
  absl::StrAppend(&text, absl::StrFormat("    %s = %s, %s on %g Gbit/s and %g us; a ring %s, %s\n",
                                         FormulaOf(exchange, shared_out), HumanBytes(exchange.direct_bytes()),
                                         HumanSeconds(exchange.direct_seconds()), all.link_gbit(), all.link_us(),
                                         HumanBytes(exchange.ring_bytes()), HumanSeconds(exchange.ring_seconds())));
  absl::StrAppend(&text, "    buffers      ", rows ? most : "",
                  HumanBytes(static_cast<double>(exchange.buffer_bytes())), "\n", "    comparison of the replicas ",
                  HumanBytes(exchange.check().bytes_out()), " out, before the first step and at each checkpoint\n");
  if (shared_out) {
    const v1::Flow& gather = all.share(exchange.trainer()).gather();
    absl::StrAppend(&text, "    exchange of the copies ", HumanBytes(gather.bytes_out()), " out, ",
                    HumanBytes(gather.bytes_in()), " in, before the first step\n");
  }
  return text;
}

std::string TrainerText(const v1::ExplainedTrainer& trainer, const v1::Explanation& e, const char* most) {
  std::string text = trainer.count() == 1
                         ? absl::StrCat("trainer ", trainer.first())
                         : absl::StrCat("trainers ", trainer.first(), " to ", trainer.first() + trainer.count() - 1);
  absl::StrAppend(&text, ": ", trainer.lanes(), trainer.lanes() == 1 ? " lane" : " lanes", " of ", trainer.lane_batch(),
                  " examples", trainer.count() == 1 ? "" : " each",
                  e.has_merged_hosts()  ? "\n  a step, to and from the trainer that merges for its host:\n"
                  : e.has_all_reduced() ? "\n  a step, to and from servers:\n"
                                        : "\n  a step:\n",
                  FlowsText(trainer.step(), most));
  const v1::TrainerMemory& memory = trainer.memory();
  if (e.has_all_reduced()) text += ExchangeText(trainer.exchange(), e.all_reduced(), most);
  absl::StrAppend(&text, e.has_all_reduced() ? "  arithmetic of a step " : "    arithmetic   ",
                  HumanFlops(trainer.flops()), "\n");
  if (!e.has_all_reduced()) {
    absl::StrAppend(&text, "  before the first: ", HumanBytes(trainer.startup().bytes_in()), " of parameters\n");
  }
  absl::StrAppend(&text, "  variables: ", most, HumanBytes(static_cast<double>(memory.total())), " (lanes ",
                  HumanBytes(static_cast<double>(memory.lanes())), ", rows of the step ",
                  HumanBytes(static_cast<double>(memory.step())), ", parameters ",
                  HumanBytes(static_cast<double>(memory.parameters())), "); lanes ",
                  HumanBytes(static_cast<double>(memory.lanes_apart())), " without memory_optimize, ",
                  HumanBytes(static_cast<double>(memory.lanes_shared())), " with it\n");
  return text;
}

// Returns the first groups of trainers, and that of the trainer which sends most.
std::string TrainersText(const v1::Explanation& e, const char* most) {
  std::string text;
  int left_out = 0;
  for (int g = 0; g < e.trainer_size(); ++g) {
    const v1::ExplainedTrainer& group = e.trainer(g);
    const int largest = e.all_reduced().largest_trainer() - group.first();
    if (g < kMostGroups || (largest >= 0 && largest < group.count())) {
      text += TrainerText(group, e, most) + "\n";
    } else {
      ++left_out;
    }
  }
  if (left_out > 0) absl::StrAppend(&text, left_out, " more groups of trainers: --format=json has them\n\n");
  return text;
}

// Returns what merging saves, and what the first groups of hosts exchange with servers.
std::string MergedHostsText(const v1::MergedHosts& merged, const char* most) {
  std::string text = MergedText(merged) + "\n";
  for (int g = 0; g < std::min(merged.host_size(), kMostGroups); ++g) {
    absl::StrAppend(&text, "  a step of ", MergedHostName(merged.host(g)), ", to and from servers:\n",
                    FlowsText(merged.host(g).step(), most));
  }
  if (merged.host_size() > kMostGroups) {
    absl::StrAppend(&text, "  ", merged.host_size() - kMostGroups, " more groups of hosts: --format=json has them\n");
  }
  return text + "\n";
}

std::string SpeedText(const v1::SpeedPrediction& speed) {
  const std::string where = absl::StrCat(
      MachinesText(speed), " with ", speed.cores(), speed.cores() == 1 ? " core of " : " cores of ", speed.processor(),
      speed.has_link_gbit() ? absl::StrFormat(", links of %g Gbit/s and %g us", speed.link_gbit(), speed.link_us())
                            : ", shared memory");
  if (speed.has_refusal()) return absl::StrCat("no step time is predicted: ", speed.refusal(), "\n\n");
  std::string text = absl::StrCat("predicted step ", HumanSeconds(speed.step_seconds()), ", ",
                                  HumanCount(speed.examples_per_second()), " examples/s: ", where, "\n");
  absl::StrAppendFormat(&text, "    %-18s %9s %9s %9s %13s %12s %9s %9s\n", "", "together", "trainer", "server",
                        "trainer link", "server link", "machine", "waits");
  const auto cell = [](double seconds) { return seconds > 0 ? HumanSeconds(seconds) : std::string("-"); };
  for (const v1::SpeedPhase& phase : speed.phase()) {
    absl::StrAppendFormat(&text, "    %-18s %9s %9s %9s %13s %12s %9s %9s\n", phase.name(), cell(phase.seconds()),
                          cell(phase.trainer()), cell(phase.server()), cell(phase.trainer_link()),
                          cell(phase.server_link()), cell(phase.machine()), cell(phase.round_trips()));
  }
  absl::StrAppend(&text, "    held up most by ", speed.bottleneck(), "; ", HumanSeconds(speed.processor_seconds()),
                  " of processor time a step, of all processes\n\n");
  return text;
}

}  // namespace

const char* FormulaOf(const v1::TrainerExchange& exchange, bool shared_out) {
  if (shared_out) return "k(V-S) + (p-1)S";
  // Few values go behind the headers.
  const bool whole = exchange.dense().messages() == 0 && exchange.dense().bytes_out() > 0;
  return whole ? "k(p-1) V" : "(k+1)(p-1)/p V";
}

std::string MachinesText(const v1::SpeedPrediction& speed) {
  if (speed.one_machine()) return "all processes on one machine";
  if (!speed.has_trainers_per_host()) return "each process on a machine";
  return absl::StrCat(speed.trainers_per_host(), " trainers or one server on a machine");
}

std::string MergedText(const v1::MergedHosts& merged) {
  // The last host may have fewer.
  const bool even = merged.host_size() == 0 || merged.host().rbegin()->trainers() == merged.trainers_per_host();
  return absl::StrCat(SavedText(merged, even), " a step between hosts and servers");
}

std::string AddedText(const v1::AddedOnHosts& added, int trainers) {
  const bool even = added.hosts() * added.trainers_per_host() == trainers;
  return absl::StrCat(SavedText(added, even), " of dense gradients a step between hosts");
}

std::string MergedHostName(const v1::MergedHost& host) {
  if (host.count() > 1) {
    return absl::StrCat("hosts ", host.first(), " to ", host.first() + host.count() - 1, ", each with ",
                        host.trainers(), " trainers");
  }
  const int last = host.first_trainer() + host.trainers() - 1;
  const std::string trainers = host.trainers() == 1 ? absl::StrCat("trainer ", last)
                                                    : absl::StrCat("trainers ", host.first_trainer(), " to ", last);
  return absl::StrCat("host ", host.first(), " with ", trainers);
}

std::string BucketParameters(const v1::ExplainedBucket& bucket) {
  std::vector<std::string> names(bucket.parameters().begin(), bucket.parameters().end());
  for (int i = 0; i < bucket.blocks_size(); ++i) {
    if (bucket.blocks(i) > 1) absl::StrAppend(&names[static_cast<size_t>(i)], " (", bucket.blocks(i), " blocks)");
  }
  return absl::StrJoin(names, ", ");
}

std::string ExplanationText(const v1::Explanation& e) {
  const char* const most = e.at_most() ? "at most " : "";
  const StepFacts& steps = StepFactsOf(e.sync());
  std::string text = absl::StrCat(e.job(), ": ", e.servers(), e.servers() == 1 ? " server, " : " servers, ",
                                  e.trainers(), e.trainers() == 1 ? " trainer, " : " trainers, ", e.lanes(), " lanes, ",
                                  steps.name, ", batch ", e.batch_size(), ", plan ", e.fingerprint(), "\n");
  if (e.sampled_steps() > 0) {
    absl::StrAppend(&text, "traffic: mean of ", e.sampled_steps(), " steps of the job's data\n");
  } else if (e.at_most()) {
    absl::StrAppend(
        &text,
        "traffic: \"at most\" stands where it depends on distinct ids, as if each slot had one id and no two were "
        "the same; --sample=N reads N batches and predicts\n");
  }
  text += "\n";
  if (e.has_speed()) text += SpeedText(e.speed());
  for (const v1::ExplainedServer& server : e.server()) text += ServerText(server, e, most) + "\n";
  if (e.has_all_reduced()) text += AllReducedText(e, most) + "\n";
  text += TrainersText(e, most);
  if (e.has_merged_hosts()) text += MergedHostsText(e.merged_hosts(), most);
  if (e.has_all_reduced() && e.trainers() > 1) {
    absl::StrAppend(&text, "trainer ", e.all_reduced().largest_trainer(), " sends most to other trainers\n\n");
  }
  if (e.has_norms()) {
    absl::StrAppend(&text, "norms over whole parameters, brought by ", steps.norms_from, ": ",
                    HumanCount(e.norms().messages()), " messages a step, ", HumanBytes(e.norms().bytes_out()), " out, ",
                    HumanBytes(e.norms().bytes_in()), " in\n\n");
  }
  for (const v1::ExplainedTable& table : e.table()) {
    absl::StrAppend(
        &text, "table ", table.name(), ": ", most, HumanCount(table.rows_of_step()), " distinct rows a step, ",
        table.width(), table.value_bytes() == 4 ? " floats and " : " 16-bit floats and ", table.state_width(),
        " of state each, ", table.capacity() == 0 ? "no limit" : absl::StrCat("at most ", table.capacity(), " rows"),
        "; fetched by row: it is distributed\n");
  }
  for (const v1::RowFetch& fetch : e.row_fetch()) {
    absl::StrAppend(&text, "table ", fetch.parameter(), ": fetched ",
                    fetch.by_row() ? "by row: " : "whole: ", fetch.why(), "\n");
  }
  absl::StrAppend(&text, absl::StrFormat("balance of servers, max/mean: %.2f by bytes at rest, %.2f by load of a step",
                                         e.balance().bytes(), e.balance().load()));
  if (e.balance().idle() > 0) absl::StrAppend(&text, "; ", e.balance().idle(), " without a block of a dense parameter");
  text += "\n";
  for (const std::string& note : e.note()) absl::StrAppend(&text, note, "\n");
  if (e.column_size() > 0) text += "\nvariables of the data\n";
  for (const std::string& column : e.column()) absl::StrAppend(&text, "  ", column, "\n");
  if (e.alternative_size() > 0) text += "\nother choices\n";
  for (const v1::Alternative& alternative : e.alternative()) absl::StrAppend(&text, "  ", alternative.text(), "\n");
  return text;
}

}  // namespace weir
