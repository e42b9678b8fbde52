#include "transpiler/process_programs.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "transpiler/transpile.h"

namespace weir {
namespace {

absl::Status InFile(const std::string& file, const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(file, ": ", status.message()));
}

absl::StatusOr<v1::ProgramDesc> ReadVerified(const Job& job, const v1::Plan& plan, const std::string& file) {
  ASSIGN_OR_RETURN(v1::ProgramDesc program, ReadProgramFile(file));
  RETURN_IF_ERROR(InFile(file, VerifyProgram(program)));
  if (!program.has_plan()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": has no plan; processes run programs that transpile has written for them"));
  }
  const std::string difference = FirstDifference(PlanText(job, program.plan()), PlanText(job, plan));
  if (!difference.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": its plan is not the job's ('here' is the file): ", difference));
  }
  return program;
}

// What is given is read, the rest is made.
absl::Status Overlay(const Job& job, const v1::Plan& plan, const std::string& main_file, const std::string& startup_file,
                     Programs* programs) {
  if (!main_file.empty()) {
    ASSIGN_OR_RETURN(programs->main, ReadVerified(job, plan, main_file));
  }
  if (!startup_file.empty()) {
    ASSIGN_OR_RETURN(programs->startup, ReadVerified(job, plan, startup_file));
  }
  return absl::OkStatus();
}

const google::protobuf::RepeatedPtrField<std::string>& Strings(const v1::OpDesc& op, std::string_view name) {
  static const auto* const none = new google::protobuf::RepeatedPtrField<std::string>;
  const v1::OpAttr* attr = FindAttr(op, name);
  return attr == nullptr ? *none : attr->strings().v();
}

// Counts the blocks that ops of one type name. The verifier has seen one server per block.
absl::Status CountBlocks(const v1::ProgramDesc& main, const std::string& type, std::map<std::string, int>* counts) {
  std::map<std::string, int64_t> servers;
  for (const v1::PlacedBlock& block : main.plan().blocks()) servers[block.name()] = block.server();
  for (const v1::PlacedTable& table : main.plan().tables()) servers[table.name()] = -1;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() != type) continue;
    const auto& blocks = Strings(op, "blocks");
    const v1::OpAttr* given = FindAttr(op, "servers");
    for (int i = 0; i < blocks.size(); ++i) {
      const auto found = servers.find(blocks[i]);
      if (found == servers.end()) {
        return absl::InvalidArgumentError(absl::StrCat(type, " names block '", blocks[i], "', which the plan does not know"));
      }
      const int64_t server = given == nullptr || i >= given->ints().v_size() ? -2 : given->ints().v(i);
      if (server != found->second) {
        return absl::InvalidArgumentError(absl::StrCat(type, " of block '", blocks[i], "' goes to server ", server,
                                                       "; the plan has it on server ", found->second));
      }
      ++(*counts)[blocks[i]];
    }
  }
  return absl::OkStatus();
}

absl::Status Once(const std::string& what, const std::string& name, int count) {
  if (count == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " '", name, "' is ", count == 0 ? "missing" : "there more than once"));
}

// The table or block that an optimize block updates; "" when none of its ops is an update.
std::string UpdatedBy(const v1::BlockDesc& block) {
  for (const v1::OpDesc& op : block.ops()) {
    if (!InputOf(op, "LearningRate").empty()) return InputOf(op, "Param");
  }
  return "";
}

}  // namespace

absl::Status CheckExchange(const v1::ProgramDesc& trainer_main) {
  std::map<std::string, int> sent, received;
  RETURN_IF_ERROR(CountBlocks(trainer_main, "send", &sent));
  RETURN_IF_ERROR(CountBlocks(trainer_main, "recv", &received));
  for (const v1::PlacedBlock& block : trainer_main.plan().blocks()) {
    RETURN_IF_ERROR(Once("send of the gradient of block", block.name(), sent[block.name()]));
    RETURN_IF_ERROR(Once("recv of block", block.name(), received[block.name()]));
  }
  return absl::OkStatus();
}

absl::Status CheckOwnership(const v1::ProgramDesc& server_main, int server) {
  const v1::OpDesc* listen = nullptr;
  for (const v1::OpDesc& op : server_main.blocks(0).ops()) {
    if (op.type() == "listen_and_serv") listen = &op;
  }
  if (listen == nullptr) return absl::InvalidArgumentError("is no server's program: it has no listen_and_serv");
  const int64_t id = FindAttr(*listen, "server_id")->i();
  if (id != server) {
    return absl::InvalidArgumentError(absl::StrCat("is the program of server ", id, ", and this is server ", server));
  }
  std::map<std::string, int> updates;
  const v1::OpAttr* blocks = FindAttr(*listen, "optimize_blocks");
  const int count = blocks == nullptr ? 0 : blocks->blocks().v_size();
  for (int i = 0; i < count; ++i) ++updates[UpdatedBy(server_main.blocks(blocks->blocks().v(i)))];
  for (const v1::PlacedBlock& block : server_main.plan().blocks()) {
    if (block.server() == server) RETURN_IF_ERROR(Once("optimize block of", block.name(), updates[block.name()]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Programs> TrainerPrograms(const Job& job, const std::string& main_file, const std::string& startup_file) {
  ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(job));
  Programs programs = transpiled.trainer();
  RETURN_IF_ERROR(Overlay(job, transpiled.plan(), main_file, startup_file, &programs));
  RETURN_IF_ERROR(InFile(main_file.empty() ? "trainer program" : main_file, CheckExchange(programs.main)));
  return programs;
}

absl::StatusOr<Programs> ServerPrograms(const Job& job, int server, const std::string& main_file,
                                        const std::string& startup_file) {
  ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(job));
  ASSIGN_OR_RETURN(Programs programs, transpiled.Server(server));
  RETURN_IF_ERROR(Overlay(job, transpiled.plan(), main_file, startup_file, &programs));
  RETURN_IF_ERROR(InFile(main_file.empty() ? "server program" : main_file, CheckOwnership(programs.main, server)));
  return programs;
}

}  // namespace weir
