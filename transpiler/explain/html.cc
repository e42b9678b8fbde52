// Writes the explanation as one printable page without scripts and external resources.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "transpiler/explain/explain.h"

namespace weir {
namespace {

// Ops drawn of one program; a line counts the rest.
constexpr int kDrawnOps = 400;
// Rows of the tables of trainers, and of blocks that trainers share out; the JSON form has all.
constexpr int kTrainerRows = 64, kBlockRows = 200;

constexpr char kStyle[] = R"css(
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px; padding: 0 1rem; color: #1c2530;
  background: #fff }
h1 { font-size: 1.5rem; margin: 0 0 .2rem } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem }
  h3 { font-size: 1rem; margin: 1rem 0 .3rem }
p { margin: .3rem 0 } .dim { color: #5c6b7a }
table { border-collapse: collapse; margin: .4rem 0 1rem }
  th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #e3e8ee }
th { font-weight: 600; background: #f4f6f8 } th:first-child, td:first-child { text-align: left }
svg { max-width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: #1c2530 }
  svg .small { font-size: 10px; fill: #5c6b7a }
details { margin: .4rem 0 } summary { cursor: pointer; font-weight: 600 }
ol.ops { list-style: none; margin: .4rem 0; padding: 0; font: 12px/1.5 ui-monospace, monospace }
ol.ops li { border-left: 6px solid #aaa; padding: .05rem .6rem; margin: 1px 0; overflow-wrap: anywhere }
ol.ops b { font-weight: 600 } .key span { border-left: 6px solid #aaa; padding: 0 .6rem 0 .3rem; margin-right: .4rem }
)css";

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Colour(const std::string& role) {
  static const auto* const colours = new std::map<std::string, std::string>{
      {"FORWARD", "#4c8bf5"}, {"BACKWARD", "#8e6cc9"},    {"OPTIMIZE", "#2f9e6e"}, {"RPC", "#e0762b"},
      {"DIST", "#c9a227"},    {"LR_SCHEDULE", "#5f8a8b"}, {"LOSS", "#d64550"},     {"INIT", "#7a8794"}};
  const auto found = colours->find(role);
  return found == colours->end() ? "#aaaaaa" : found->second;
}

// Returns the colour of a parameter, which all its blocks share.
std::string Hue(int index) {
  return absl::StrFormat("hsl(%d, 55%%, %d%%)", (index * 137) % 360, 62 + (index / 8) % 3 * 8);
}

std::string Cells(const std::vector<std::string>& cells, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) absl::StrAppend(&row, "<", tag, ">", Escaped(cell), "</", tag, ">");
  return row + "</tr>\n";
}

std::string FlowRow(const std::string& what, const v1::Flow& flow) {
  return Cells({what, HumanCount(flow.messages()), HumanBytes(flow.bytes_out()), HumanBytes(flow.bytes_in()),
                flow.rows() > 0 ? HumanCount(flow.rows()) : ""},
               "td");
}

std::string FlowsTable(const v1::Flows& flows, const std::string& rows_title) {
  std::string table = "<table>\n" + Cells({"a step", "messages", "to servers", "from servers", rows_title}, "th");
  if (flows.pull_rows().messages() > 0) table += FlowRow("rows", flows.pull_rows());
  return table + FlowRow("gradients", flows.push()) + FlowRow("parameters", flows.pull_blocks()) +
         FlowRow("together", flows.total()) + "</table>\n";
}

// Draws the placement: servers as columns of their blocks, with heights by bytes at rest; tables as a band below,
// divided by shards; trainers underneath, with the traffic between them and each server.
class PlacementDrawing {
 public:
  explicit PlacementDrawing(const v1::Explanation& e) : e_(e), shown_(std::min(kMostServers, e.server_size())) {
    for (const v1::ExplainedServer& server : e.server()) {
      most_ = std::max(most_, static_cast<double>(server.bytes_at_rest()));
      for (const v1::ExplainedBlock& block : server.block()) {
        hue_.emplace(block.parameter(), static_cast<int>(hue_.size()));
      }
    }
    width_ = shown_ * (kColumn + kGap) + kGap;
    wire_ = kTop + kHeight + e.table_size() * (kBand + 4) + 14;
  }

  std::string Draw() {
    const int height = wire_ + 120;
    svg_ = absl::StrFormat(
        "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"placement\">\n", width_,
        height, width_, height);
    for (int s = 0; s < shown_; ++s) {
      const int x = kGap + s * (kColumn + kGap);
      DrawBlocks(e_.server(s), x);
      DrawTables(s, x);
      DrawTraffic(e_.server(s).step().total(), x + kColumn / 2);
    }
    DrawTrainers();
    if (shown_ < e_.server_size()) {
      absl::StrAppend(&svg_, "<p class=\"dim\">The first ", shown_, " of ", e_.server_size(),
                      " servers are drawn.</p>\n");
    }
    return std::move(svg_);
  }

 private:
  static constexpr int kColumn = 190, kGap = 26, kTop = 34, kHeight = 260, kBand = 18;
  static constexpr int kMostServers = 32;

  void DrawBlocks(const v1::ExplainedServer& server, int x) {
    absl::StrAppendFormat(
        &svg_, "<text x=\"%d\" y=\"14\">server %d</text><text class=\"small\" x=\"%d\" y=\"27\">%s at rest</text>\n", x,
        server.index(), x, HumanBytes(static_cast<double>(server.bytes_at_rest())));
    absl::StrAppendFormat(&svg_,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f4f6f8\" stroke=\"#ccd4dc\"/>\n",
                          x, kTop, kColumn, kHeight);
    double y = kTop + kHeight;
    for (const v1::ExplainedBlock& block : server.block()) {
      const double tall = kHeight * static_cast<double>(block.bytes() + block.state_bytes()) / most_;
      y -= tall;
      absl::StrAppendFormat(
          &svg_,
          "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" fill=\"%s\" stroke=\"#fff\" stroke-width=\"0.5\">"
          "<title>%s [%s], %s and %s state</title></rect>\n",
          x, y, kColumn, std::max(0.3, tall), Hue(hue_.at(block.parameter())), Escaped(block.name()),
          absl::StrJoin(block.dims(), ", "), HumanBytes(static_cast<double>(block.bytes())),
          HumanBytes(static_cast<double>(block.state_bytes())));
      if (tall >= 13) {
        absl::StrAppendFormat(&svg_, "<text x=\"%d\" y=\"%.2f\">%s</text>\n", x + 5, y + tall / 2 + 4,
                              Escaped(block.name().substr(0, 22)));
      }
    }
  }

  void DrawTables(int server, int x) {
    for (int t = 0; t < e_.table_size(); ++t) {
      const int at = kTop + kHeight + 4 + t * (kBand + 4);
      absl::StrAppendFormat(
          &svg_,
          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" fill=\"#fff\" stroke=\"#e0762b\"/>"
          "<text x=\"%d\" y=\"%d\">%s: %d shards</text>\n",
          x, at, kColumn, kBand, x + 5, at + 13, Escaped(e_.table(t).name().substr(0, 14)), e_.table(t).shards(server));
    }
  }

  void DrawTraffic(const v1::Flow& flow, int middle) {
    absl::StrAppendFormat(
        &svg_,
        "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#e0762b\" stroke-width=\"2\"/>"
        "<text class=\"small\" x=\"%d\" y=\"%d\">up %s</text><text class=\"small\" x=\"%d\" y=\"%d\">down %s</text>"
        "<text class=\"small\" x=\"%d\" y=\"%d\">%s messages</text>\n",
        middle, wire_, middle, wire_ + 62, middle + 6, wire_ + 18, HumanBytes(flow.bytes_out()), middle + 6, wire_ + 32,
        HumanBytes(flow.bytes_in()), middle + 6, wire_ + 46, HumanCount(flow.messages()));
  }

  void DrawTrainers() {
    absl::StrAppendFormat(
        &svg_, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"40\" rx=\"4\" fill=\"#e9f0fd\" stroke=\"#4c8bf5\"/>",
        kGap, wire_ + 62, width_ - 2 * kGap);
    std::vector<std::string> trainers;
    for (const v1::ExplainedTrainer& trainer : e_.trainer()) {
      trainers.push_back(absl::StrCat(trainer.count(), trainer.count() == 1 ? " trainer with " : " trainers with ",
                                      trainer.lanes(), trainer.lanes() == 1 ? " lane" : " lanes"));
    }
    absl::StrAppendFormat(&svg_, "<text x=\"%d\" y=\"%d\">%s</text>\n</svg>\n", kGap + 10, wire_ + 87,
                          Escaped(absl::StrJoin(trainers, ", ")));
  }

  const v1::Explanation& e_;
  const int shown_;                 // servers
  std::map<std::string, int> hue_;  // by parameter
  double most_ = 1;                 // bytes at rest of the fullest server
  int width_ = 0;
  int wire_ = 0;  // y of the upper end of the lines to the trainers
  std::string svg_;
};

std::string Program(const v1::DrawnProgram& program) {
  std::string out =
      absl::StrCat("<details", program.op_size() <= 60 ? " open" : "", "><summary>", Escaped(program.name()), ", ",
                   program.op_size(), " operators</summary>\n<ol class=\"ops\">\n");
  int block = 0;
  for (int i = 0; i < std::min(kDrawnOps, program.op_size()); ++i) {
    const v1::DrawnOp& op = program.op(i);
    if (op.block() != block) {
      block = op.block();
      absl::StrAppend(&out, "<li class=\"dim\">block ", block, "</li>\n");
    }
    absl::StrAppend(&out, "<li style=\"border-color:", Colour(op.role()), "\">");
    if (op.outputs_size() > 0) absl::StrAppend(&out, Escaped(absl::StrJoin(op.outputs(), ", ")), " &larr; ");
    absl::StrAppend(&out, "<b>", Escaped(op.type()), "</b>");
    if (op.inputs_size() > 0) absl::StrAppend(&out, "(", Escaped(absl::StrJoin(op.inputs(), ", ")), ")");
    if (op.flops() > 0) absl::StrAppend(&out, " <span class=\"dim\">", HumanFlops(op.flops()), "</span>");
    out += "</li>\n";
  }
  if (program.op_size() > kDrawnOps)
    absl::StrAppend(&out, "<li class=\"dim\">and ", program.op_size() - kDrawnOps, " more</li>\n");
  return out + "</ol>\n</details>\n";
}

std::string Servers(const v1::Explanation& e) {
  std::string table =
      "<table>\n" +
      Cells({"server", "parameters", "blocks", "at rest", "to it", "from it", "messages", "updates"}, "th");
  for (const v1::ExplainedServer& server : e.server()) {
    const v1::Flow& flow = server.step().total();
    table += Cells({absl::StrCat(server.index()), HumanCount(static_cast<double>(server.parameters())),
                    absl::StrCat(server.block_size()), HumanBytes(static_cast<double>(server.bytes_at_rest())),
                    HumanBytes(flow.bytes_out()), HumanBytes(flow.bytes_in()), HumanCount(flow.messages()),
                    HumanFlops(server.flops())},
                   "td");
  }
  return table + "</table>\n";
}

std::string Exchange(const v1::TrainerExchange& exchange, const v1::AllReduced& all) {
  std::string table = "<table>\n" + Cells({"a step", "messages", "to trainers", "from trainers", ""}, "th");
  table += FlowRow(all.average_every_steps() > 0 ? "averages" : "dense", exchange.dense());
  const auto moves = [](const v1::Flow& flow) { return flow.messages() > 0 || flow.bytes_in() > 0; };
  if (moves(exchange.rows())) table += FlowRow("rows", exchange.rows());
  const bool shared_out = exchange.has_trainer();
  if (shared_out) table += FlowRow("values", exchange.values());
  if (moves(exchange.updated_rows())) table += FlowRow("updated rows", exchange.updated_rows());
  table += FlowRow("headers", exchange.headers());
  if (exchange.has_norms()) table += FlowRow("norms", exchange.norms());
  table += FlowRow("together", exchange.total()) + "</table>\n";
  return absl::StrCat(
      table, "<p>", shared_out ? absl::StrCat("Trainer ", exchange.trainer(), ", k = ") : "k = ", exchange.nodes(),
      ": ", shared_out ? "k(V-S) + (p-1)S" : "(k+1)(p-1)/p V", " is ", HumanBytes(exchange.direct_bytes()), ", ",
      HumanSeconds(exchange.direct_seconds()),
      absl::StrFormat(" on %g Gbit/s and %g us", all.link_gbit(), all.link_us()), "; a ring would send ",
      HumanBytes(exchange.ring_bytes()), " in ", HumanSeconds(exchange.ring_seconds()),
      ". Buffers: ", HumanBytes(static_cast<double>(exchange.buffer_bytes())),
      ". Comparison of the replicas: ", HumanBytes(exchange.check().bytes_out()),
      ", before the first step and at each checkpoint.</p>\n");
}

std::string Trainer(const v1::ExplainedTrainer& trainer, const v1::Explanation& e) {
  const std::string rows_title = e.at_most() ? "rows, at most" : "rows";
  const v1::TrainerMemory& memory = trainer.memory();
  const std::string who = trainer.count() == 1 ? absl::StrCat("Trainer ", trainer.first())
                                               : absl::StrCat("Trainers ", trainer.first(), " to ",
                                                              trainer.first() + trainer.count() - 1, ", each");
  return absl::StrCat(
      "<h3>", who, ": ", trainer.lanes(), trainer.lanes() == 1 ? " lane" : " lanes", " of ", trainer.lane_batch(),
      " examples</h3>\n", FlowsTable(trainer.step(), rows_title),
      e.has_all_reduced() ? Exchange(trainer.exchange(), e.all_reduced()) : "", "<p>", HumanFlops(trainer.flops()),
      " a step. Variables: ", HumanBytes(static_cast<double>(memory.total())), ", of it lanes ",
      HumanBytes(static_cast<double>(memory.lanes())), ", rows ", HumanBytes(static_cast<double>(memory.step())),
      ", parameters ", HumanBytes(static_cast<double>(memory.parameters())), "; lanes are ",
      HumanBytes(static_cast<double>(memory.lanes_apart())), " without <code>memory_optimize</code> and ",
      HumanBytes(static_cast<double>(memory.lanes_shared())), " with it.</p>\n");
}

std::string Head(const v1::Explanation& e) {
  std::string head = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>", Escaped(e.job()),
      ": what it will cost</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<h1>", Escaped(e.job()),
      "</h1>\n<p class=\"dim\">", e.servers(), " servers, ", e.trainers(), " trainers, ", e.lanes(), " lanes, ",
      e.sync() ? "sync" : "async", ", ", e.batch_size(), " examples a step, plan ", e.fingerprint(), "</p>\n");
  if (e.sampled_steps() > 0) {
    absl::StrAppend(&head, "<p>Traffic is the mean of ", e.sampled_steps(), " steps of the job's data.</p>\n");
  } else if (e.at_most()) {
    head +=
        "<p>Where traffic depends on distinct ids, numbers are bounds: as if each slot had one id and no two were the "
        "same. "
        "<code>--sample=N</code> reads N batches and predicts.</p>\n";
  }
  for (const std::string& note : e.note()) absl::StrAppend(&head, "<p>", Escaped(note), "</p>\n");
  return head;
}

std::string Trainers(const v1::Explanation& e) {
  std::string text = "<h2>Trainers</h2>\n";
  for (const v1::ExplainedTrainer& trainer : e.trainer()) {
    text += Trainer(trainer, e);
  }
  if (e.has_norms()) {
    absl::StrAppend(&text, "<p>Norms over whole parameters, brought by ", e.sync() ? "trainer 0" : "each trainer", ": ",
                    HumanCount(e.norms().messages()), " messages a step, ", HumanBytes(e.norms().bytes_out()), " out, ",
                    HumanBytes(e.norms().bytes_in()), " in.</p>\n");
  }
  return text;
}

// Returns a table of what each trainer updates.
std::string Shares(const v1::AllReduced& all) {
  if (all.share().empty()) return "";
  std::string text = "<table>\n" + Cells({"trainer", "blocks", "values", "state", "at rest with its copy", "buffers",
                                          "updates", "messages", "to trainers", "from trainers"},
                                         "th");
  for (int t = 0; t < std::min(kTrainerRows, all.share_size()); ++t) {
    const v1::UpdateShare& share = all.share(t);
    text += Cells(
        {absl::StrCat(share.trainer()), absl::StrCat(share.blocks()),
         HumanBytes(static_cast<double>(share.value_bytes())), HumanBytes(static_cast<double>(share.state_bytes())),
         HumanBytes(static_cast<double>(share.bytes_at_rest())), HumanBytes(static_cast<double>(share.buffer_bytes())),
         HumanFlops(share.flops()), HumanCount(share.step().messages()), HumanBytes(share.step().bytes_out()),
         HumanBytes(share.step().bytes_in())},
        "td");
  }
  text += "</table>\n";
  if (all.share_size() > kTrainerRows) {
    absl::StrAppend(&text, "<p class=\"dim\">The first ", kTrainerRows, " of ", all.share_size(),
                    " trainers are listed.</p>\n");
  }
  return text;
}

std::string AllReduced(const v1::Explanation& e) {
  if (!e.has_all_reduced()) return "";
  const v1::AllReduced& all = e.all_reduced();
  std::string text = absl::StrCat(
      "<h2>Every trainer</h2>\n<p>", HumanCount(static_cast<double>(all.replica().parameters())), " parameters in ",
      all.replica().block_size(), " blocks, ", HumanBytes(static_cast<double>(all.replica().bytes_at_rest())),
      all.share().empty() ? " at rest with optimizer state. "
                          : ": a copy; each trainer has the state of its share beside it. ",
      all.average_every_steps() > 0 ? absl::StrCat("Every ", all.average_every_steps(), " steps the average of ")
                                    : std::string("A step adds "),
      HumanBytes(static_cast<double>(all.dense_bytes())), ". Trainer ", all.largest_trainer(), " sends most.</p>\n");
  text += "<table>\n" + Cells({"operation", "parameters", "bytes"}, "th");
  for (int i = 0; i < all.bucket_size(); ++i) {
    const v1::ExplainedBucket& bucket = all.bucket(i);
    text += Cells({absl::StrCat(i), BucketParameters(bucket),
                   absl::StrCat(bucket.row_width() > 0 && e.at_most() ? "at most " : "", HumanBytes(bucket.bytes()),
                                bucket.row_width() > 0 ? " of rows" : "")},
                  "td");
  }
  text += "</table>\n" + Shares(all);
  std::vector<std::string> title = {"block", "dims", "values", "state"};
  if (!all.share().empty()) title.push_back("trainer");
  absl::StrAppend(&text, "<table>\n", Cells(title, "th"));
  const int shown = all.share().empty() ? all.replica().block_size() : std::min(kBlockRows, all.replica().block_size());
  for (int b = 0; b < shown; ++b) {
    const v1::ExplainedBlock& block = all.replica().block(b);
    std::vector<std::string> cells = {block.name(), absl::StrJoin(block.dims(), " x "),
                                      HumanBytes(static_cast<double>(block.bytes())),
                                      HumanBytes(static_cast<double>(block.state_bytes()))};
    if (block.has_trainer()) cells.push_back(absl::StrCat(block.trainer()));
    text += Cells(cells, "td");
  }
  text += "</table>\n";
  if (shown < all.replica().block_size()) {
    absl::StrAppend(&text, "<p class=\"dim\">The first ", shown, " of ", all.replica().block_size(),
                    " blocks are listed.</p>\n");
  }
  return text;
}

std::string Speed(const v1::SpeedPrediction& speed) {
  if (speed.has_refusal()) return absl::StrCat("<p>No step time is predicted: ", speed.refusal(), ".</p>\n");
  std::string text = absl::StrCat(
      "<h2>Predicted speed</h2>\n<p><b>", HumanSeconds(speed.step_seconds()), "</b> a step, <b>",
      HumanCount(speed.examples_per_second()), "</b> examples/s, held up most by ", speed.bottleneck(), ". ",
      speed.one_machine() ? "All processes on one machine" : "Each process on a machine", " with ", speed.cores(),
      speed.cores() == 1 ? " core of " : " cores of ", speed.processor(),
      speed.has_link_gbit() ? absl::StrFormat(", links of %g Gbit/s and %g us", speed.link_gbit(), speed.link_us())
                            : ", shared memory",
      ".</p>\n<table>\n",
      Cells({"phase", "together", "trainer", "server", "trainer's link", "server's link", "machine", "waits"}, "th"));
  const auto cell = [](double seconds) { return seconds > 0 ? HumanSeconds(seconds) : std::string(); };
  for (const v1::SpeedPhase& phase : speed.phase()) {
    text +=
        Cells({phase.name(), cell(phase.seconds()), cell(phase.trainer()), cell(phase.server()),
               cell(phase.trainer_link()), cell(phase.server_link()), cell(phase.machine()), cell(phase.round_trips())},
              "td");
  }
  return text + "</table>\n";
}

std::string Tables(const v1::Explanation& e) {
  if (e.table_size() + e.row_fetch_size() == 0) return "";
  std::string text = "<h2>Tables</h2>\n<table>\n" +
                     Cells({"table", "floats", "state", "bytes a row", "rows of a step", "fetched"}, "th");
  for (const v1::ExplainedTable& table : e.table()) {
    text += Cells(
        {table.name(), absl::StrCat(table.width(), table.value_bytes() == 4 ? "" : " of 16 bits"),
         absl::StrCat(table.state_width()), absl::StrCat(table.row_bytes()),
         absl::StrCat(e.at_most() ? "at most " : "", HumanCount(table.rows_of_step())), "by row: it is distributed"},
        "td");
  }
  for (const v1::RowFetch& fetch : e.row_fetch()) {
    text += Cells(
        {fetch.parameter(), "", "", "", "", absl::StrCat(fetch.by_row() ? "by row: " : "whole: ", fetch.why())}, "td");
  }
  return text + "</table>\n";
}

// step_seconds 0: not predicted.
std::string Choice(const std::string& change, const v1::Balance& balance, double messages, int64_t most_bytes,
                   int64_t trainer_memory, double step_seconds) {
  std::vector<std::string> cells = {change,
                                    absl::StrFormat("%.2f", balance.bytes()),
                                    absl::StrFormat("%.2f", balance.load()),
                                    HumanCount(messages),
                                    HumanBytes(static_cast<double>(most_bytes)),
                                    HumanBytes(static_cast<double>(trainer_memory))};
  if (step_seconds > 0) cells.push_back(HumanSeconds(step_seconds));
  return Cells(cells, "td");
}

std::string Choices(const v1::Explanation& e) {
  if (e.alternative_size() == 0) return "";
  double messages = 0;
  int64_t most_bytes = 0, memory = 0;
  for (const v1::ExplainedServer& server : e.server()) most_bytes = std::max(most_bytes, server.bytes_at_rest());
  for (const v1::ExplainedTrainer& trainer : e.trainer()) {
    messages = std::max(messages, trainer.step().total().messages());
    memory = std::max(memory, trainer.memory().total());
  }
  std::vector<std::string> title = {"choice", "max/mean by bytes", "by load", "messages", "fullest server", "trainer"};
  if (e.speed().step_seconds() > 0) title.push_back("step");
  std::string text = "<h2>Other choices</h2>\n<table>\n" + Cells(title, "th") +
                     Choice("this job", e.balance(), messages, most_bytes, memory, e.speed().step_seconds());
  for (const v1::Alternative& a : e.alternative()) {
    text += Choice(a.change(), a.balance(), a.messages(), a.most_bytes(), a.trainer_memory(), a.step_seconds());
  }
  return text + "</table>\n";
}

std::string DrawnPrograms(const v1::Explanation& e) {
  std::string text = "<h2>Programs</h2>\n<p class=\"key dim\">";
  for (const char* role : {"FORWARD", "LOSS", "BACKWARD", "RPC", "DIST", "OPTIMIZE"}) {
    absl::StrAppend(&text, "<span style=\"border-color:", Colour(role), "\">", role, "</span>");
  }
  text += "</p>\n";
  for (const v1::DrawnProgram& program : e.program()) text += Program(program);
  return text;
}

}  // namespace

std::string ExplanationHtml(const v1::Explanation& e) {
  return absl::StrCat(
      Head(e), "<h2>Placement</h2>\n", PlacementDrawing(e).Draw(),
      absl::StrFormat(
          "<p>Max over mean of the servers: <b>%.2f</b> by bytes at rest, <b>%.2f</b> by load of a step.</p>\n",
          e.balance().bytes(), e.balance().load()),
      e.has_speed() ? Speed(e.speed()) : "", Servers(e), AllReduced(e), Trainers(e), Tables(e), Choices(e),
      DrawnPrograms(e), "</body>\n</html>\n");
}

}  // namespace weir
