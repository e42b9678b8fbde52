#include "framework/graph/verifier.h"

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/graph/format_version.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/training_mode.h"
#include "framework/graph/var_index.h"
#include "framework/tensor/tensor.h"

namespace weir {
namespace {

absl::Status At(std::string_view place, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(absl::string_view(place.data(), place.size()), ": ", status.message()));
}

absl::Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }

// Tracks, in one block, the variables that gate ops may still be reading while lanes go on.
class GateReads {
 public:
  // Takes op `i` next. InvalidArgument if it overwrites, in a lane, a variable that an earlier gate op reads.
  absl::Status Pass(const std::string& place, int i, const v1::OpDesc& op, const OpDef& def, const VarLookup& find) {
    // Step ops run once for all lanes, after all gate ops have finished.
    const bool step = def.scope == OpScope::kStep || op.role() == v1::OPTIMIZE || op.role() == v1::INIT ||
                      op.role() == v1::LR_SCHEDULE;
    if (step) {
      read_by_.clear();
      return absl::OkStatus();
    }
    if (def.scope == OpScope::kGate) {
      ForEachVar(op.inputs(), [&](const std::string& name) { Read(find(name), i); });
      return absl::OkStatus();
    }
    for (const v1::OpSlot& slot : op.outputs()) {
      for (const std::string& name : slot.vars()) {
        const v1::VarDesc* var = find(name);
        if (const auto gate = read_by_.find(var); gate != read_by_.end()) {
          return Invalid(absl::StrCat(place, ": output ", slot.name(), ": variable '", name, "' is read by op ",
                                      gate->second,
                                      ", for which no lane waits: it may still be reading; write another variable"));
        }
        views_.erase(var);
        if (op.role() != v1::DIST) continue;
        // Pieces of a gradient may share its memory, so a gate that reads a piece reads the whole too.
        for (const v1::OpSlot& from : op.inputs()) {
          for (const std::string& whole : from.vars()) views_[var].push_back(find(whole));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  void Read(const v1::VarDesc* read, int gate) {
    // Iterative, not recursive: a file may nest views arbitrarily deep.
    std::vector<const v1::VarDesc*> left = {read};
    while (!left.empty()) {
      const v1::VarDesc* const var = left.back();
      left.pop_back();
      if (!read_by_.emplace(var, gate).second) continue;
      const auto view = views_.find(var);
      if (view != views_.end()) left.insert(left.end(), view->second.begin(), view->second.end());
    }
  }

  std::unordered_map<const v1::VarDesc*, int> read_by_;  // first gate op that reads it
  std::unordered_map<const v1::VarDesc*, std::vector<const v1::VarDesc*>>
      views_;  // variables whose memory it may share
};

class Verifier {
 public:
  explicit Verifier(const v1::ProgramDesc& program) : program_(program), index_(program) {}

  absl::Status Run() {
    if (program_.format_version() > kProgramFormatVersion) {
      return Invalid(absl::StrCat("program format version ", program_.format_version(), " is newer than ",
                                  kProgramFormatVersion, ", the newest that this build reads"));
    }
    if (program_.blocks_size() == 0) return Invalid("a program has at least block 0, this one has no blocks");
    RETURN_IF_ERROR(CheckBlocks());
    for (int b = 0; b < program_.blocks_size(); ++b) {
      for (const v1::VarDesc& var : program_.blocks(b).vars()) RETURN_IF_ERROR(CheckVar(b, var));
    }
    FindFed();
    for (int b = 0; b < program_.blocks_size(); ++b) RETURN_IF_ERROR(CheckOps(b));
    RETURN_IF_ERROR(CheckMode());
    return CheckLosses();
  }

 private:
  absl::Status CheckBlocks() const {
    for (int b = 0; b < program_.blocks_size(); ++b) {
      const v1::BlockDesc& block = program_.blocks(b);
      if (block.index() != b) {
        return Invalid(absl::StrCat("block ", b, " of the program says that it has index ", block.index()));
      }
      if (b == 0 ? block.parent() != -1 : block.parent() < 0 || block.parent() >= b) {
        return Invalid(absl::StrCat("block ", b, ": parent ", block.parent(),
                                    b == 0 ? "; block 0 has none (-1)" : "; a parent stands before its block"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckMode() const {
    if (!program_.has_mode()) return absl::OkStatus();
    if (program_.format_version() < kModeProgramFormat) {
      return Invalid(absl::StrCat("a program with a mode has format version ", kModeProgramFormat, " or later, got ",
                                  program_.format_version(), "; older builds would not see the mode"));
    }
    for (const v1::OpDesc& op : program_.blocks(0).ops()) {
      if (const v1::OpAttr* attr = ModeAttr(op); attr != nullptr) {
        return Invalid(absl::StrCat("attribute '", attr->name(), "' of ", op.type(),
                                    " belongs to the mode, and the program has one; remove the attribute"));
      }
    }
    const v1::TrainingMode& mode = program_.mode();
    RETURN_IF_ERROR(CheckModeValues(mode));
    RETURN_IF_ERROR(CheckUpdates("geo", mode.geo().blocks(), mode.geo().lr_block()));
    RETURN_IF_ERROR(CheckUpdates("all_reduce", mode.all_reduce().blocks(), mode.all_reduce().lr_block()));
    RETURN_IF_ERROR(CheckSums(mode.all_reduce()));
    return program_.has_plan() ? CheckModeFits(mode, program_.plan()) : absl::OkStatus();
  }

  // Checks how trainers add dense gradients among themselves.
  static absl::Status CheckSums(const v1::AllReduceMode& mode) {
    const v1::DType format = mode.compression();
    if (format == v1::DTYPE_UNSET) return absl::OkStatus();
    if (format != v1::FLOAT16 && format != v1::BFLOAT16) {
      return Invalid(
          absl::StrCat("mode: all_reduce.compression must be FLOAT16 or BFLOAT16, got ", v1::DType_Name(format)));
    }
    if (!mode.any_order()) return Invalid("mode: all_reduce.compression needs any_order: true");
    if (mode.adasum()) return Invalid("mode: all_reduce has both compression and adasum");
    return absl::OkStatus();
  }

  // Checks the blocks that a part of the mode names.
  absl::Status CheckUpdates(const char* part, const google::protobuf::RepeatedField<int32_t>& blocks,
                            int lr_block) const {
    std::vector<int32_t> named(blocks.begin(), blocks.end());
    if (lr_block != -1) named.push_back(lr_block);
    for (const int32_t block : named) {
      if (block >= 1 && block < program_.blocks_size()) continue;
      return Invalid(absl::StrCat("mode: ", part, " names block ", block, "; blocks inside block 0 are 1 to ",
                                  program_.blocks_size() - 1));
    }
    return absl::OkStatus();
  }

  absl::Status CheckVar(int b, const v1::VarDesc& var) {
    const std::string place = absl::StrCat("block ", b, ": variable '", var.name(), "'");
    if (var.name().empty()) return Invalid(absl::StrCat("block ", b, ": a variable without a name"));
    if (index_.Find(b, var.name()) != &var) return Invalid(place + " is declared twice");
    if (b > 0 && index_.Find(program_.blocks(b).parent(), var.name()) != nullptr) {
      return Invalid(place + " hides one of the same name in an enclosing block");
    }
    if (const absl::Status dims = CheckDims(var); !dims.ok()) return At(absl::StrCat("block ", b), dims);
    if (var.dtype() == v1::DTYPE_UNSET) return Invalid(place + " has no dtype");
    if (var.kind() == v1::TABLE && var.dtype() != v1::FLOAT32 && var.dtype() != v1::FLOAT16 &&
        var.dtype() != v1::BFLOAT16) {
      return Invalid(
          absl::StrCat(place, " is ", DescribeVar(var), "; values of tables are float32, float16 or bfloat16"));
    }
    if (var.is_parameter() && !var.persistable()) return Invalid(place + " is a parameter and not persistable");
    // Scopes keep tensors and servers keep tables. Any other shared variable would be written by all lanes at once.
    if (var.persistable() && var.kind() != v1::DENSE && var.kind() != v1::TABLE) {
      return Invalid(
          absl::StrCat(place, " is persistable and ", DescribeVar(var), "; only tensors and tables outlive a step"));
    }
    switch (var.kind()) {
      case v1::DENSE:
        break;
      case v1::SELECTED_ROWS:
        if (var.dims_size() < 2) {
          return Invalid(
              absl::StrCat(place, " holds rows and has dims ", ShapeString(Dims(var)), "; expected [height, width]"));
        }
        break;
      case v1::IDS:
        if (var.dims_size() != 2 || var.dims(0) != -1 || var.dims(1) < 1) {
          return Invalid(
              absl::StrCat(place, " holds ids and has dims ", ShapeString(Dims(var)), "; expected [-1, slots]"));
        }
        break;
      case v1::TABLE:
        if (var.dims_size() != 2 || var.dims(1) < 1) {
          return Invalid(
              absl::StrCat(place, " is a table and has dims ", ShapeString(Dims(var)), "; expected [-1, width]"));
        }
        if (var.logical_shards() < 1 || (var.logical_shards() & (var.logical_shards() - 1)) != 0) {
          return Invalid(
              absl::StrCat(place, " has ", var.logical_shards(), " logical shards; expected a power of two"));
        }
        break;
    }
    if (var.has_block_of()) RETURN_IF_ERROR(CheckPiece(place, var));
    return absl::OkStatus();
  }

  absl::Status CheckPiece(const std::string& place, const v1::VarDesc& var) const {
    const v1::BlockOf& piece = var.block_of();
    const int64_t whole =
        KnownCount(absl::MakeConstSpan(piece.whole_dims().data(), static_cast<size_t>(piece.whole_dims_size())));
    if (piece.element_begin() < 0 || piece.element_count() < 0 || whole < piece.element_count() ||
        piece.element_begin() > whole - piece.element_count()) {
      return Invalid(absl::StrCat(place, " is elements ", piece.element_begin(), " + ", piece.element_count(), " of '",
                                  piece.variable(), "', which has ", whole));
    }
    if (var.kind() == v1::DENSE && KnownCount(Dims(var)) >= 0 && KnownCount(Dims(var)) != piece.element_count()) {
      return Invalid(absl::StrCat(place, " has dims ", ShapeString(Dims(var)), " and is ", piece.element_count(),
                                  " elements of '", piece.variable(), "'"));
    }
    return absl::OkStatus();
  }

  // Finds variables that the program is fed: no op writes one without reading it.
  void FindFed() {
    for (int b = 0; b < program_.blocks_size(); ++b) {
      for (const v1::OpDesc& op : program_.blocks(b).ops()) {
        std::unordered_set<std::string_view> read;
        ForEachVar(op.inputs(), [&](const std::string& name) { read.insert(name); });
        ForEachVar(op.outputs(), [&](const std::string& name) {
          if (!read.contains(name)) made_.insert(index_.Find(b, name));
        });
      }
    }
  }

  bool Fed(const v1::VarDesc* var) const { return var->stop_gradient() && !made_.contains(var); }

  absl::Status CheckOps(int b) {
    const VarLookup find = index_.Lookup(b);
    // Variables written in this block. An enclosing block has run as far as needed when an op runs this one.
    std::unordered_set<const v1::VarDesc*> written;
    std::unordered_map<const v1::VarDesc*, int> gate_written;
    GateReads gate_reads;
    const std::unordered_set<const v1::VarDesc*> own = OwnVars(b);
    for (int i = 0; i < program_.blocks(b).ops_size(); ++i) {
      const v1::OpDesc& op = program_.blocks(b).ops(i);
      const std::string place = OpPlace(b, i, op);
      const absl::StatusOr<const OpDef*> def = CheckSignature(op, find, /*outputs_may_be_new=*/false);
      if (!def.ok()) return At(place, WithSuggestion(b, op, def.status()));
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& name : slot.vars()) {
          const v1::VarDesc* var = find(name);
          if (own.contains(var) && !var->persistable() && !written.contains(var) && !Fed(var)) {
            return Invalid(absl::StrCat(
                place, ": input ", slot.name(), ": variable '", name, "' is read ",
                made_.contains(var) ? "before it is written" : "and nothing writes it; what is fed has stop_gradient"));
          }
          if (const auto gate = gate_written.find(var); gate != gate_written.end() && (*def)->scope == OpScope::kLane) {
            return Invalid(absl::StrCat(place, ": input ", slot.name(), ": variable '", name, "' is written by op ",
                                        gate->second, ", for which no lane waits"));
          }
        }
      }
      RETURN_IF_ERROR(CheckBlockRefs(b, place, op));
      RETURN_IF_ERROR(CheckShapes(place, op, **def, find));
      if ((*def)->is_optimizer) RETURN_IF_ERROR(CheckUpdate(place, op, **def, find));
      RETURN_IF_ERROR(CheckParamGrads(place, op, **def, find));
      RETURN_IF_ERROR(gate_reads.Pass(place, i, op, **def, find));
      for (const v1::OpSlot& slot : op.outputs()) {
        for (const std::string& name : slot.vars()) {
          written.insert(find(name));
          if ((*def)->scope == OpScope::kGate) gate_written.emplace(find(name), i);
        }
      }
    }
    return absl::OkStatus();
  }

  std::unordered_set<const v1::VarDesc*> OwnVars(int b) const {
    std::unordered_set<const v1::VarDesc*> own;
    for (const v1::VarDesc& var : program_.blocks(b).vars()) own.insert(&var);
    return own;
  }

  // Adds a suggestion: an undeclared variable is usually a misspelt one.
  absl::Status WithSuggestion(int b, const v1::OpDesc& op, const absl::Status& status) const {
    if (status.code() != absl::StatusCode::kNotFound) return status;
    for (const auto* slots : {&op.inputs(), &op.outputs()}) {
      for (const v1::OpSlot& slot : *slots) {
        for (const std::string& name : slot.vars()) {
          if (index_.Find(b, name) != nullptr) continue;
          const std::string near = NearestName(name, index_.Names(b));
          return Invalid(
              absl::StrCat(status.message(), near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)")));
        }
      }
    }
    return Invalid(std::string(status.message()));
  }

  absl::Status CheckBlockRefs(int b, const std::string& place, const v1::OpDesc& op) const {
    const auto check = [&](const std::string& attr, int32_t ref) -> absl::Status {
      if (ref <= b || ref >= program_.blocks_size()) {
        return Invalid(absl::StrCat(place, ": attribute '", attr, "' names block ", ref, "; blocks inside block ", b,
                                    " are ", b + 1, " to ", program_.blocks_size() - 1));
      }
      return absl::OkStatus();
    };
    for (const v1::OpAttr& attr : op.attrs()) {
      if (attr.has_block()) RETURN_IF_ERROR(check(attr.name(), attr.block()));
      for (int32_t ref : attr.blocks().v()) RETURN_IF_ERROR(check(attr.name(), ref));
    }
    return absl::OkStatus();
  }

  absl::Status CheckShapes(const std::string& place, const v1::OpDesc& op, const OpDef& def,
                           const VarLookup& find) const {
    const absl::StatusOr<std::vector<v1::VarDesc>> outputs = InferOutputs(op, def, find);
    if (!outputs.ok()) return At(place, outputs.status());
    for (const v1::VarDesc& inferred : *outputs) {
      const v1::VarDesc* declared = find(inferred.name());
      // -1 stands for a dimension known only at run time, so neither declaration implies the other.
      if (declared->kind() == inferred.kind() && declared->dtype() == inferred.dtype() &&
          Dims(*declared) == Dims(inferred)) {
        continue;
      }
      return Invalid(absl::StrCat(place, ": output '", inferred.name(), "' is declared as ", DescribeVar(*declared),
                                  "; the op gives ", DescribeVar(inferred)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckUpdate(const std::string& place, const v1::OpDesc& op, const OpDef& def,
                           const VarLookup& find) const {
    const v1::VarDesc* param = find(OnlyVar(op.inputs(), "Param"));
    const v1::VarDesc* grad = find(OnlyVar(op.inputs(), "Grad"));
    const v1::VarDesc* rate = find(OnlyVar(op.inputs(), "LearningRate"));
    if (param == nullptr || grad == nullptr || rate == nullptr) {
      return Invalid(place + ": an update op needs Param, Grad and LearningRate");
    }
    if (!param->persistable()) return Invalid(absl::StrCat(place, ": Param '", param->name(), "' is not persistable"));
    RETURN_IF_ERROR(CheckPair(place, *param, *grad));
    if (KnownCount(Dims(*rate)) != 1) {
      return Invalid(
          absl::StrCat(place, ": LearningRate '", rate->name(), "' is ", DescribeVar(*rate), "; expected [1]"));
    }
    if (OnlyVar(op.outputs(), "ParamOut") != param->name()) {
      return Invalid(absl::StrCat(place, ": ParamOut is '", OnlyVar(op.outputs(), "ParamOut"), "'; it is Param, '",
                                  param->name(), "'"));
    }
    for (const StateDef& state : def.state) RETURN_IF_ERROR(CheckState(place, op, state, *param, *grad, find));
    return absl::OkStatus();
  }

  absl::Status CheckState(const std::string& place, const v1::OpDesc& op, const StateDef& state,
                          const v1::VarDesc& param, const v1::VarDesc& grad, const VarLookup& find) const {
    const std::string& name = OnlyVar(op.inputs(), state.slot);
    if (name.empty() && param.kind() == v1::TABLE) return absl::OkStatus();
    const v1::VarDesc* var = find(name);
    if (var == nullptr) return Invalid(absl::StrCat(place, ": state ", state.slot, " is missing"));
    if (!var->persistable()) return Invalid(absl::StrCat(place, ": state '", name, "' is not persistable"));
    if (OnlyVar(op.outputs(), state.slot + "Out") != name) {
      return Invalid(absl::StrCat(place, ": ", state.slot, "Out is '", OnlyVar(op.outputs(), state.slot + "Out"),
                                  "'; it is ", state.slot, ", '", name, "'"));
    }
    const int64_t count = KnownCount(Dims(*var));
    const int64_t rows = param.dims_size() > 0 ? param.dims(0) : 1;
    const bool fits = state.like == StateDef::kParameter ? DimsAgree(Dims(*var), Dims(param))
                      : state.like == StateDef::kScalar  ? count == 1
                      : grad.kind() == v1::SELECTED_ROWS ? count == rows
                                                         : count == 1;
    if (fits) return absl::OkStatus();
    return Invalid(absl::StrCat(place, ": state ", state.slot, " '", name, "' is ", DescribeVar(*var), "; Param '",
                                param.name(), "' is ", DescribeVar(param)));
  }

  // Checks that a parameter and its gradient have the same shape; gradients by rows may differ in height.
  absl::Status CheckPair(const std::string& place, const v1::VarDesc& param, const v1::VarDesc& grad) const {
    const bool agree = grad.kind() == v1::SELECTED_ROWS ? param.dims_size() >= 2 && grad.dims_size() >= 2 &&
                                                              DimsAgree(Dims(param).subspan(1), Dims(grad).subspan(1))
                                                        : grad.kind() == v1::DENSE && param.kind() == v1::DENSE &&
                                                              DimsAgree(Dims(param), Dims(grad));
    if (agree) return absl::OkStatus();
    return Invalid(absl::StrCat(place, ": gradient '", grad.name(), "' is ", DescribeVar(grad), "; parameter '",
                                param.name(), "' is ", DescribeVar(param)));
  }

  absl::Status CheckParamGrads(const std::string& place, const v1::OpDesc& op, const OpDef& def,
                               const VarLookup& find) const {
    for (const v1::ParamGrad& pair : op.param_grads()) {
      if (pair.param().empty() || pair.grad().empty()) return Invalid(place + ": param_grads with an empty name");
      const v1::VarDesc* param = find(pair.param());
      const v1::VarDesc* grad = find(pair.grad());
      if (op.role() == v1::BACKWARD || op.role() == v1::OPTIMIZE) {
        for (const auto& [name, var] : {std::pair(pair.param(), param), std::pair(pair.grad(), grad)}) {
          if (var == nullptr)
            return Invalid(absl::StrCat(place, ": param_grads names '", name, "', which is not declared"));
        }
        RETURN_IF_ERROR(CheckPair(place, *param, *grad));
      }
      if (def.is_optimizer &&
          (pair.param() != OnlyVar(op.inputs(), "Param") || pair.grad() != OnlyVar(op.inputs(), "Grad"))) {
        return Invalid(absl::StrCat(place, ": param_grads says '", pair.param(), "', '", pair.grad(),
                                    "'; Param and Grad are '", OnlyVar(op.inputs(), "Param"), "', '",
                                    OnlyVar(op.inputs(), "Grad"), "'"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckLosses() const {
    std::unordered_set<const v1::VarDesc*> used;
    for (const v1::OpDesc& op : program_.blocks(0).ops()) {
      for (const auto* slots : {&op.inputs(), &op.outputs()}) {
        ForEachVar(*slots, [&](const std::string& name) { used.insert(index_.Find(0, name)); });
      }
    }
    for (const v1::LossDesc& loss : program_.losses()) {
      const auto check = [&](const char* part, const std::string& name, bool floats) -> absl::Status {
        const std::string place = absl::StrCat("loss '", loss.name(), "' names variable '", name, "'");
        const v1::VarDesc* var = index_.Find(0, name);
        if (var == nullptr) return Invalid(place + ", which is not declared");
        const bool fits = var->kind() == v1::DENSE && !var->persistable() &&
                          (var->dtype() == v1::FLOAT32 || (!floats && var->dtype() == v1::INT64));
        if (!fits) {
          return Invalid(absl::StrCat(place, " as its ", part, "; it is ", var->persistable() ? "persistable " : "",
                                      DescribeVar(*var), ", expected a batch of float32", floats ? "" : " or int64"));
        }
        if (!used.contains(var)) return Invalid(absl::StrCat(place, " as its ", part, ", which no op reads or writes"));
        return absl::OkStatus();
      };
      RETURN_IF_ERROR(check("var", loss.var(), /*floats=*/true));
      if (!loss.prediction().empty()) RETURN_IF_ERROR(check("prediction", loss.prediction(), /*floats=*/true));
      if (!loss.label().empty()) RETURN_IF_ERROR(check("label", loss.label(), /*floats=*/false));
      if (!loss.sample_weight().empty())
        RETURN_IF_ERROR(check("sample_weight", loss.sample_weight(), /*floats=*/false));
    }
    for (const std::string& name : program_.kept()) {
      const v1::VarDesc* const var = index_.Find(0, name);
      if (var == nullptr) return Invalid(absl::StrCat("keeps variable '", name, "', which is not declared"));
      if (var->kind() != v1::DENSE || var->persistable() || !used.contains(var)) {
        return Invalid(absl::StrCat("keeps variable '", name, "' for evaluations; it is ",
                                    var->persistable() ? "persistable " : "", DescribeVar(*var),
                                    ", expected a dense variable of a batch that an op reads or writes"));
      }
    }
    return absl::OkStatus();
  }

  const v1::ProgramDesc& program_;
  const ProgramIndex index_;
  // Variables written by an op that does not read them.
  std::unordered_set<const v1::VarDesc*> made_;
};

}  // namespace

absl::Status VerifyProgram(const v1::ProgramDesc& program) { return Verifier(program).Run(); }

}  // namespace weir
