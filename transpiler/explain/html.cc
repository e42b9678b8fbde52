// Writes the explanation as one printable page without scripts and external resources.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "transpiler/explain/explain.h"
#include "transpiler/explain/explain_css.h"
#include "transpiler/job/modes.h"

namespace weir {
namespace {

// Ops drawn of one program; a line counts the rest.
constexpr int kDrawnOps = 400;
// Rows of the tables of trainers, and of blocks that trainers share out; the JSON form has all.
constexpr int kTrainerRows = 64, kBlockRows = 200;

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Returns the colour of a parameter, which all its blocks share. Dark text has a contrast of 4.5 on each.
std::string Hue(int index) {
  return absl::StrFormat("hsl(%d, 55%%, %d%%)", (index * 137) % 360, 72 + (index / 8) % 3 * 6);
}

// Returns a part of the page. `body` is markup.
std::string Section(const std::string& title, const std::string& body) {
  return absl::StrCat("<section>\n<h2>", Escaped(title), "</h2>\n", body, "</section>\n");
}

// Returns a table whose rows are markup, in a box of its own that scrolls on a narrow screen.
std::string Table(const std::string& rows) {
  return absl::StrCat("<div class=\"scroll\"><table>\n", rows, "</table></div>\n");
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
  std::string rows = Cells({"a step", "messages", "to servers", "from servers", rows_title}, "th");
  if (flows.pull_rows().messages() > 0) rows += FlowRow("rows", flows.pull_rows());
  return Table(rows + FlowRow("gradients", flows.push()) + FlowRow("parameters", flows.pull_blocks()) +
               FlowRow("together", flows.total()));
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
    width_ = shown_ * (kColumn + kGap) - kGap + 2;
    wire_ = kTop + kHeight + e.table_size() * (kBand + 4) + 14;
  }

  std::string Draw() {
    const int height = wire_ + 104;
    svg_ = absl::StrFormat(
        "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"placement\">\n", width_,
        height, width_, height);
    for (int s = 0; s < shown_; ++s) {
      const int x = 1 + s * (kColumn + kGap);
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
    absl::StrAppendFormat(&svg_, "<rect class=\"server\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", x, kTop,
                          kColumn, kHeight);
    double y = kTop + kHeight;
    for (const v1::ExplainedBlock& block : server.block()) {
      const double tall = kHeight * static_cast<double>(block.bytes() + block.state_bytes()) / most_;
      y -= tall;
      absl::StrAppendFormat(&svg_,
                            "<rect class=\"block\" x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" fill=\"%s\">"
                            "<title>%s [%s], %s and %s state</title></rect>\n",
                            x, y, kColumn, std::max(0.3, tall), Hue(hue_.at(block.parameter())), Escaped(block.name()),
                            absl::StrJoin(block.dims(), ", "), HumanBytes(static_cast<double>(block.bytes())),
                            HumanBytes(static_cast<double>(block.state_bytes())));
      if (tall >= 13) {
        absl::StrAppendFormat(&svg_, "<text class=\"on\" x=\"%d\" y=\"%.2f\">%s</text>\n", x + 5, y + tall / 2 + 4,
                              Escaped(block.name().substr(0, 22)));
      }
    }
  }

  void DrawTables(int server, int x) {
    for (int t = 0; t < e_.table_size(); ++t) {
      const int at = kTop + kHeight + 4 + t * (kBand + 4);
      absl::StrAppendFormat(&svg_,
                            "<rect class=\"table\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\"/>"
                            "<text x=\"%d\" y=\"%d\">%s: %d shards</text>\n",
                            x, at, kColumn, kBand, x + 5, at + 13, Escaped(e_.table(t).name().substr(0, 14)),
                            e_.table(t).shards(server));
    }
  }

  void DrawTraffic(const v1::Flow& flow, int middle) {
    absl::StrAppendFormat(
        &svg_,
        "<line class=\"wire\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>"
        "<text class=\"small\" x=\"%d\" y=\"%d\">up %s</text><text class=\"small\" x=\"%d\" y=\"%d\">down %s</text>"
        "<text class=\"small\" x=\"%d\" y=\"%d\">%s messages</text>\n",
        middle, wire_, middle, wire_ + 62, middle + 6, wire_ + 18, HumanBytes(flow.bytes_out()), middle + 6, wire_ + 32,
        HumanBytes(flow.bytes_in()), middle + 6, wire_ + 46, HumanCount(flow.messages()));
  }

  void DrawTrainers() {
    absl::StrAppendFormat(&svg_, "<rect class=\"trainers\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"40\" rx=\"4\"/>", 1,
                          wire_ + 62, width_ - 2);
    std::vector<std::string> trainers;
    for (const v1::ExplainedTrainer& trainer : e_.trainer()) {
      trainers.push_back(absl::StrCat(trainer.count(), trainer.count() == 1 ? " trainer with " : " trainers with ",
                                      trainer.lanes(), trainer.lanes() == 1 ? " lane" : " lanes"));
    }
    absl::StrAppendFormat(&svg_, "<text x=\"%d\" y=\"%d\">%s</text>\n</svg>\n", 11, wire_ + 87,
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
      absl::StrAppend(&out, "<li class=\"block\">block ", block, "</li>\n");
    }
    const std::string role = Escaped(absl::AsciiStrToLower(op.role()));
    absl::StrAppend(&out, "<li class=\"", role, "\"><span class=\"role\">", role, "</span><span>");
    if (op.outputs_size() > 0) absl::StrAppend(&out, Escaped(absl::StrJoin(op.outputs(), ", ")), " &larr; ");
    absl::StrAppend(&out, "<b>", Escaped(op.type()), "</b>");
    if (op.inputs_size() > 0) absl::StrAppend(&out, "(", Escaped(absl::StrJoin(op.inputs(), ", ")), ")");
    if (op.flops() > 0) absl::StrAppend(&out, " <span class=\"dim\">", HumanFlops(op.flops()), "</span>");
    out += "</span></li>\n";
  }
  if (program.op_size() > kDrawnOps)
    absl::StrAppend(&out, "<li class=\"block\">and ", program.op_size() - kDrawnOps, " more</li>\n");
  return out + "</ol>\n</details>\n";
}

std::string Servers(const v1::Explanation& e) {
  std::string rows =
      Cells({"server", "parameters", "blocks", "at rest", "to it", "from it", "messages", "updates"}, "th");
  for (const v1::ExplainedServer& server : e.server()) {
    const v1::Flow& flow = server.step().total();
    rows += Cells({absl::StrCat(server.index()), HumanCount(static_cast<double>(server.parameters())),
                   absl::StrCat(server.block_size()), HumanBytes(static_cast<double>(server.bytes_at_rest())),
                   HumanBytes(flow.bytes_out()), HumanBytes(flow.bytes_in()), HumanCount(flow.messages()),
                   HumanFlops(server.flops())},
                  "td");
  }
  return Table(rows);
}

std::string Exchange(const v1::TrainerExchange& exchange, const v1::AllReduced& all) {
  std::string rows = Cells({"a step", "messages", "to trainers", "from trainers", ""}, "th");
  rows += FlowRow(all.average_every_steps() > 0 ? "averages" : "dense", exchange.dense());
  const auto moves = [](const v1::Flow& flow) { return flow.messages() > 0 || flow.bytes_in() > 0; };
  if (moves(exchange.rows())) rows += FlowRow("rows", exchange.rows());
  const bool shared_out = exchange.has_trainer();
  if (shared_out) rows += FlowRow("values", exchange.values());
  if (moves(exchange.updated_rows())) rows += FlowRow("updated rows", exchange.updated_rows());
  rows += FlowRow("headers", exchange.headers());
  if (exchange.has_norms()) rows += FlowRow("norms", exchange.norms());
  rows += FlowRow("together", exchange.total());
  return absl::StrCat(Table(rows), "<p>",
                      shared_out ? absl::StrCat("Trainer ", exchange.trainer(), ", k = ") : "k = ", exchange.nodes(),
                      ": ", FormulaOf(exchange, shared_out), " is ", HumanBytes(exchange.direct_bytes()), ", ",
                      HumanSeconds(exchange.direct_seconds()),
                      absl::StrFormat(" on %g Gbit/s and %g us", all.link_gbit(), all.link_us()),
                      "; a ring would send ", HumanBytes(exchange.ring_bytes()), " in ",
                      HumanSeconds(exchange.ring_seconds()),
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

std::string Figure(const std::string& name, const std::string& now, const std::string& beside) {
  return absl::StrCat("<div><dt>", Escaped(name), "</dt><dd class=\"now\">", Escaped(now), "</dd><dd>", Escaped(beside),
                      "</dd></div>\n");
}

// Returns the trainer that sends most to servers and other trainers.
const v1::ExplainedTrainer* BusiestTrainer(const v1::Explanation& e) {
  const auto sends = [](const v1::ExplainedTrainer& trainer) {
    return trainer.step().total().bytes_out() + trainer.exchange().total().bytes_out();
  };
  const auto less = [&](const v1::ExplainedTrainer& a, const v1::ExplainedTrainer& b) { return sends(a) < sends(b); };
  return e.trainer().empty() ? nullptr : &*std::max_element(e.trainer().begin(), e.trainer().end(), less);
}

// Returns the figures that one looks for first.
std::string FigureList(const v1::Explanation& e) {
  std::string text = "<dl class=\"figures\">\n";
  if (e.speed().step_seconds() > 0) {
    text += Figure("predicted examples/s", HumanCount(e.speed().examples_per_second()),
                   absl::StrCat(HumanSeconds(e.speed().step_seconds()), " a step"));
  }
  if (!e.server().empty()) {
    int64_t most = 0;
    for (const v1::ExplainedServer& server : e.server()) most = std::max(most, server.bytes_at_rest());
    text += Figure("fullest server, at rest", HumanBytes(static_cast<double>(most)),
                   absl::StrFormat("%.2f times the mean", e.balance().bytes()));
  }
  if (const v1::ExplainedTrainer* const trainer = BusiestTrainer(e); trainer != nullptr) {
    const v1::Flow &flow = trainer->step().total(), &exchange = trainer->exchange().total();
    const std::string most = e.at_most() ? "at most, of a trainer" : "of a trainer";
    text += Figure("sent in a step", HumanBytes(flow.bytes_out() + exchange.bytes_out()), most) +
            Figure("received in a step", HumanBytes(flow.bytes_in() + exchange.bytes_in()), most) +
            Figure("messages of a step", HumanCount(flow.messages() + exchange.messages()), "of a trainer") +
            Figure("arithmetic of a step", HumanFlops(trainer->flops()), "of a trainer") +
            Figure("variables", HumanBytes(static_cast<double>(trainer->memory().total())), "of a trainer");
  }
  return text + "</dl>\n";
}

std::string Head(const v1::Explanation& e) {
  const StepFacts& steps = StepFactsOf(e.sync());
  std::string head = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
      Escaped(e.job()), ": what it will cost</title>\n<style>\n");
  absl::StrAppend(&head, absl::string_view(ExplainCss().data(), ExplainCss().size()), "</style>\n</head>\n<body>\n<h1>",
                  Escaped(e.job()), "</h1>\n<p class=\"dim\">", e.servers(),
                  e.servers() == 1 ? " server, " : " servers, ", e.trainers(),
                  e.trainers() == 1 ? " trainer, " : " trainers, ", e.lanes(), " lanes, ", steps.name, ", ",
                  e.batch_size(), " examples a step, plan ", Escaped(e.fingerprint()), "</p>\n", FigureList(e));
  std::string notes;
  if (e.sampled_steps() > 0) {
    absl::StrAppend(&notes, "<p>Traffic is the mean of ", e.sampled_steps(), " steps of the job's data.</p>\n");
  } else if (e.at_most()) {
    notes +=
        "<p>Where traffic depends on distinct ids, numbers are bounds: as if each slot had one id and no two were the "
        "same. <code>--sample=N</code> reads N batches and predicts.</p>\n";
  }
  for (const std::string& note : e.note()) absl::StrAppend(&notes, "<p>", Escaped(note), "</p>\n");
  return notes.empty() ? head : absl::StrCat(head, "<section class=\"notes\">\n", notes, "</section>\n");
}

// Returns what hosts whose trainers merge exchange with servers.
std::string HostFlows(const v1::Explanation& e) {
  if (!e.has_merged_hosts()) return "";
  std::string text = absl::StrCat("<p>", Escaped(MergedText(e.merged_hosts())), ".</p>\n");
  for (const v1::MergedHost& host : e.merged_hosts().host()) {
    absl::StrAppend(&text, "<p>", Escaped(MergedHostName(host)), ":</p>\n",
                    FlowsTable(host.step(), e.at_most() ? "rows, at most" : "rows"));
  }
  return text;
}

std::string Trainers(const v1::Explanation& e) {
  std::string text;
  for (const v1::ExplainedTrainer& trainer : e.trainer()) text += Trainer(trainer, e);
  text += HostFlows(e);
  if (e.has_norms()) {
    absl::StrAppend(&text, "<p>Norms over whole parameters, brought by ", StepFactsOf(e.sync()).norms_from, ": ",
                    HumanCount(e.norms().messages()), " messages a step, ", HumanBytes(e.norms().bytes_out()), " out, ",
                    HumanBytes(e.norms().bytes_in()), " in.</p>\n");
  }
  return Section("Trainers", text);
}

// Returns a table of what each trainer updates.
std::string Shares(const v1::AllReduced& all) {
  if (all.share().empty()) return "";
  std::string text = Cells({"trainer", "blocks", "values", "state", "at rest with its copy", "buffers", "updates",
                            "messages", "to trainers", "from trainers"},
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
  text = Table(text);
  if (all.share_size() > kTrainerRows) {
    absl::StrAppend(&text, "<p class=\"dim\">The first ", kTrainerRows, " of ", all.share_size(),
                    " trainers are listed.</p>\n");
  }
  return text;
}

// Returns a table of the blocks that every trainer holds.
std::string ReplicaBlocks(const v1::AllReduced& all) {
  std::vector<std::string> title = {"block", "dims", "values", "state"};
  if (!all.share().empty()) title.push_back("trainer");
  std::string text = Cells(title, "th");
  const int shown = all.share().empty() ? all.replica().block_size() : std::min(kBlockRows, all.replica().block_size());
  for (int b = 0; b < shown; ++b) {
    const v1::ExplainedBlock& block = all.replica().block(b);
    std::vector<std::string> cells = {block.name(), absl::StrJoin(block.dims(), " x "),
                                      HumanBytes(static_cast<double>(block.bytes())),
                                      HumanBytes(static_cast<double>(block.state_bytes()))};
    if (block.has_trainer()) cells.push_back(absl::StrCat(block.trainer()));
    text += Cells(cells, "td");
  }
  text = Table(text);
  if (shown < all.replica().block_size()) {
    absl::StrAppend(&text, "<p class=\"dim\">The first ", shown, " of ", all.replica().block_size(),
                    " blocks are listed.</p>\n");
  }
  return text;
}

std::string AllReduced(const v1::Explanation& e) {
  if (!e.has_all_reduced()) return "";
  const v1::AllReduced& all = e.all_reduced();
  std::string text = absl::StrCat(
      "<p>", HumanCount(static_cast<double>(all.replica().parameters())), " parameters in ", all.replica().block_size(),
      " blocks, ", HumanBytes(static_cast<double>(all.replica().bytes_at_rest())),
      all.share().empty() ? " at rest with optimizer state. "
                          : ": a copy; each trainer has the state of its share beside it. ",
      all.average_every_steps() > 0 ? absl::StrCat("Every ", all.average_every_steps(), " steps the average of ")
                                    : std::string("A step adds "),
      HumanBytes(static_cast<double>(all.dense_bytes())), ". Trainer ", all.largest_trainer(), " sends most.</p>\n");
  std::string rows = Cells({"operation", "parameters", "bytes"}, "th");
  for (int i = 0; i < all.bucket_size(); ++i) {
    const v1::ExplainedBucket& bucket = all.bucket(i);
    rows += Cells({absl::StrCat(i), BucketParameters(bucket),
                   absl::StrCat(bucket.row_width() > 0 && e.at_most() ? "at most " : "", HumanBytes(bucket.bytes()),
                                bucket.row_width() > 0 ? " of rows" : "")},
                  "td");
  }
  if (all.has_added_on_hosts()) {
    absl::StrAppend(&text, "<p>", Escaped(AddedText(all.added_on_hosts(), e.trainers())), ".</p>\n");
  }
  return Section("Every trainer", absl::StrCat(text, Table(rows), Shares(all), ReplicaBlocks(all)));
}

std::string SpeedRow(const v1::SpeedPhase& phase, double longest) {
  const auto cell = [](double seconds) {
    return absl::StrCat("<td>", seconds > 0 ? HumanSeconds(seconds) : std::string(), "</td>");
  };
  return absl::StrCat("<tr><td>", Escaped(phase.name()), "</td>", cell(phase.seconds()),
                      absl::StrFormat("<td class=\"bar\"><i style=\"width: %.1f%%\"></i></td>",
                                      longest > 0 ? 100 * phase.seconds() / longest : 0),
                      cell(phase.trainer()), cell(phase.server()), cell(phase.trainer_link()),
                      cell(phase.server_link()), cell(phase.machine()), cell(phase.round_trips()), "</tr>\n");
}

std::string Speed(const v1::Explanation& e) {
  if (!e.has_speed()) return "";
  const v1::SpeedPrediction& speed = e.speed();
  if (!speed.refusal().empty()) {
    return absl::StrCat("<section class=\"notes\"><p>No step time is predicted: ", Escaped(speed.refusal()),
                        ".</p></section>\n");
  }
  double longest = 0;
  for (const v1::SpeedPhase& phase : speed.phase()) longest = std::max(longest, phase.seconds());
  std::string rows = Cells(
      {"phase", "together", "", "trainer", "server", "trainer's link", "server's link", "machine", "waits"}, "th");
  for (const v1::SpeedPhase& phase : speed.phase()) rows += SpeedRow(phase, longest);
  return Section(
      "Predicted speed",
      absl::StrCat(
          "<p><b>", HumanSeconds(speed.step_seconds()), "</b> a step, <b>", HumanCount(speed.examples_per_second()),
          "</b> examples/s, held up most by ", Escaped(speed.bottleneck()), ": ", MachinesText(speed), " with ",
          speed.cores(), speed.cores() == 1 ? " core of " : " cores of ", Escaped(speed.processor()),
          speed.has_link_gbit() ? absl::StrFormat(", links of %g Gbit/s and %g us", speed.link_gbit(), speed.link_us())
                                : ", shared memory",
          ".</p>\n", Table(rows)));
}

std::string Tables(const v1::Explanation& e) {
  if (e.table_size() + e.row_fetch_size() == 0) return "";
  std::string text = Cells({"table", "floats", "state", "bytes a row", "rows of a step", "fetched"}, "th");
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
  return Section("Tables", Table(text));
}

// Costs of a choice of settings: smaller is better. step_seconds 0: not predicted.
struct Costs {
  double balance_bytes = 0, balance_load = 0;
  double messages = 0;
  double most_bytes = 0, trainer_memory = 0;
  double step_seconds = 0;
};

// Returns a cell. It stands out if it is better than this job's by a hundredth or more.
std::string Cost(const std::string& text, double cost, double of_job) {
  return absl::StrCat(cost < 0.99 * of_job ? "<td class=\"good\">" : "<td>", Escaped(text), "</td>");
}

std::string ChoiceRow(const std::string& change, const Costs& costs, const Costs& job) {
  std::string row =
      absl::StrCat(&costs == &job ? "<tr class=\"now\"><td>" : "<tr><td>", Escaped(change), "</td>",
                   Cost(absl::StrFormat("%.2f", costs.balance_bytes), costs.balance_bytes, job.balance_bytes),
                   Cost(absl::StrFormat("%.2f", costs.balance_load), costs.balance_load, job.balance_load),
                   Cost(HumanCount(costs.messages), costs.messages, job.messages),
                   Cost(HumanBytes(costs.most_bytes), costs.most_bytes, job.most_bytes),
                   Cost(HumanBytes(costs.trainer_memory), costs.trainer_memory, job.trainer_memory));
  if (costs.step_seconds > 0) row += Cost(HumanSeconds(costs.step_seconds), costs.step_seconds, job.step_seconds);
  return row + "</tr>\n";
}

std::string ChoiceTable(const v1::Explanation& e) {
  if (e.alternative_size() == 0) return "";
  Costs job = {.balance_bytes = e.balance().bytes(),
               .balance_load = e.balance().load(),
               .step_seconds = e.speed().step_seconds()};
  for (const v1::ExplainedServer& server : e.server()) {
    job.most_bytes = std::max(job.most_bytes, static_cast<double>(server.bytes_at_rest()));
  }
  for (const v1::ExplainedTrainer& trainer : e.trainer()) {
    job.messages = std::max(job.messages, trainer.step().total().messages());
    job.trainer_memory = std::max(job.trainer_memory, static_cast<double>(trainer.memory().total()));
  }
  std::vector<std::string> title = {"choice", "max/mean by bytes", "by load", "messages", "fullest server", "trainer"};
  if (job.step_seconds > 0) title.push_back("step");
  std::string rows = Cells(title, "th") + ChoiceRow("this job", job, job);
  for (const v1::Alternative& a : e.alternative()) {
    const Costs costs = {.balance_bytes = a.balance().bytes(),
                         .balance_load = a.balance().load(),
                         .messages = a.messages(),
                         .most_bytes = static_cast<double>(a.most_bytes()),
                         .trainer_memory = static_cast<double>(a.trainer_memory()),
                         .step_seconds = a.step_seconds()};
    rows += ChoiceRow(a.change(), costs, job);
  }
  return Section("Other choices", Table(rows));
}

std::string DrawnPrograms(const v1::Explanation& e) {
  std::string text;
  for (const v1::DrawnProgram& program : e.program()) text += Program(program);
  return Section("Programs", text);
}

std::string Placement(const v1::Explanation& e) {
  return Section(
      "Placement",
      absl::StrCat("<div class=\"beside\">\n<div class=\"scroll\">", PlacementDrawing(e).Draw(), "</div>\n<div>",
                   Servers(e),
                   absl::StrFormat("<p>Max over mean of the servers: <b>%.2f</b> by bytes at rest, <b>%.2f</b> by load "
                                   "of a step.</p>\n",
                                   e.balance().bytes(), e.balance().load()),
                   "</div>\n</div>\n"));
}

}  // namespace

std::string ExplanationHtml(const v1::Explanation& e) {
  return absl::StrCat(Head(e), Placement(e), Speed(e), AllReduced(e), Trainers(e), Tables(e), ChoiceTable(e),
                      DrawnPrograms(e), "</body>\n</html>\n");
}

}  // namespace weir
