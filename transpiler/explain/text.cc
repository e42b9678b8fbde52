// The explanation for people.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "transpiler/explain/explain.h"

namespace weir {
namespace {

std::string FlowText(const char* what, const v1::Flow& flow, const char* most) {
  if (flow.messages() == 0) return "";
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

std::string AllReducedText(const v1::AllReduced& all, const char* most) {
  std::string text = BlocksText("every trainer", all.replica());
  text += UpdatesText(all.replica(), most);
  if (all.average_every_steps() > 0) {
    absl::StrAppend(&text, "  every ", all.average_every_steps(), " steps the average of all values and state, ",
                    HumanBytes(static_cast<double>(all.dense_bytes())), "\n");
    return text;
  }
  absl::StrAppend(&text, "  a step adds ", HumanBytes(static_cast<double>(all.dense_bytes())),
                  " of dense gradients, in this order:\n");
  for (const v1::ExplainedBucket& bucket : all.bucket()) {
    absl::StrAppend(&text, "    ", bucket.row_width() > 0 ? most : "", HumanBytes(bucket.bytes()),
                    bucket.row_width() > 0 ? " of gradient rows to each other trainer: " : ": ",
                    absl::StrJoin(bucket.parameters(), ", "), "\n");
  }
  return text;
}

std::string ExchangeText(const v1::TrainerExchange& exchange, const v1::AllReduced& all, const char* most) {
  const bool rows = exchange.rows().messages() > 0;
  std::string text = absl::StrCat("  a step, to and from the other trainers (k = ", exchange.nodes(), "):\n",
                                  FlowText(all.average_every_steps() > 0 ? "averages" : "dense", exchange.dense(), ""));
  if (rows) text += FlowText("rows", exchange.rows(), "");
  absl::StrAppend(&text, FlowText("headers", exchange.headers(), ""), FlowText("norms", exchange.norms(), ""),
                  FlowText("together", exchange.total(), ""));
  absl::StrAppend(&text, absl::StrFormat("    (k+1)(p-1)/p V = %s, %s on %g Gbit/s and %g us; a ring %s, %s\n",
                                         HumanBytes(exchange.direct_bytes()), HumanSeconds(exchange.direct_seconds()),
                                         all.link_gbit(), all.link_us(), HumanBytes(exchange.ring_bytes()),
                                         HumanSeconds(exchange.ring_seconds())));
  absl::StrAppend(&text, "    buffers      ", rows ? most : "",
                  HumanBytes(static_cast<double>(exchange.buffer_bytes())), "\n", "    comparison of the replicas ",
                  HumanBytes(exchange.check().bytes_out()), " out, before the first step and at each checkpoint\n");
  return text;
}

std::string TrainerText(const v1::ExplainedTrainer& trainer, const v1::Explanation& e, const char* most) {
  std::string text = trainer.count() == 1
                         ? absl::StrCat("trainer ", trainer.first())
                         : absl::StrCat("trainers ", trainer.first(), " to ", trainer.first() + trainer.count() - 1);
  absl::StrAppend(&text, ": ", trainer.lanes(), trainer.lanes() == 1 ? " lane" : " lanes", " of ", trainer.lane_batch(),
                  " examples", trainer.count() == 1 ? "" : " each",
                  e.has_all_reduced() ? "\n  a step, to and from servers:\n" : "\n  a step:\n",
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

}  // namespace

std::string ExplanationText(const v1::Explanation& e) {
  const char* const most = e.at_most() ? "at most " : "";
  std::string text =
      absl::StrCat(e.job(), ": ", e.servers(), e.servers() == 1 ? " server, " : " servers, ", e.trainers(),
                   e.trainers() == 1 ? " trainer, " : " trainers, ", e.lanes(), " lanes, ", e.sync() ? "sync" : "async",
                   ", batch ", e.batch_size(), ", plan ", e.fingerprint(), "\n");
  if (e.sampled_steps() > 0) {
    absl::StrAppend(&text, "traffic: mean of ", e.sampled_steps(), " steps of the job's data\n");
  } else if (e.at_most()) {
    absl::StrAppend(
        &text,
        "traffic: \"at most\" stands where it depends on distinct ids, as if each slot had one id and no two were "
        "the same; --sample=N reads N batches and predicts\n");
  }
  text += "\n";
  for (const v1::ExplainedServer& server : e.server()) text += ServerText(server, e, most) + "\n";
  if (e.has_all_reduced()) text += AllReducedText(e.all_reduced(), most) + "\n";
  for (const v1::ExplainedTrainer& trainer : e.trainer()) text += TrainerText(trainer, e, most) + "\n";
  if (e.has_all_reduced() && e.trainers() > 1) {
    absl::StrAppend(&text, "trainer ", e.all_reduced().largest_trainer(), " sends most to other trainers\n\n");
  }
  if (e.has_norms()) {
    absl::StrAppend(&text, "norms over whole parameters, brought by ", e.sync() ? "trainer 0" : "each trainer", ": ",
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
  if (e.alternative_size() > 0) text += "\nother choices\n";
  for (const v1::Alternative& alternative : e.alternative()) absl::StrAppend(&text, "  ", alternative.text(), "\n");
  return text;
}

}  // namespace weir
