#include "trainer/verify/job_steps.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/partitions.h"
#include "framework/graph/loss_facts.h"
#include "framework/graph/op_view.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/statistics.h"
#include "trainer/files/data_set.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

class DataSteps : public JobSteps {
 public:
  absl::Status Open(const Job& job, const v1::ProgramDesc& main, ThreadPool* pool) {
    const DataSpec spec = MakeDataSpec(job.config, job.directory, main);
    const LaneRange streams = {0, spec.streams()};
    ASSIGN_OR_RETURN(DataSet data,
                     DataSet::Open(job.config.data(), job.config.data().train(), job.directory, "data.train"));
    std::optional<DataStatistics> statistics;
    if (NeedsStatistics(spec)) {
      ASSIGN_OR_RETURN(const std::string all, CollectStatistics(spec, data, streams, pool));
      ASSIGN_OR_RETURN(statistics, MergeStatistics(spec, {all}));
    }
    data_ = data;
    ASSIGN_OR_RETURN(parser_, MakeReaderParser(job.config.data()));
    inputs_ = ExpectedInputs(*parser_, job.config.data());
    ASSIGN_OR_RETURN(reader_,
                     LaneReader::Create(std::move(data), {.spec = spec,
                                                          .streams = streams,
                                                          .statistics = statistics.has_value() ? &*statistics : nullptr,
                                                          .threads = 1}));
    deadline_ = absl::Seconds(job.config.deadlines().progress_deadline_s());
    return absl::OkStatus();
  }

  absl::Status Next(std::vector<LaneBatch>* batches) override { return reader_->Next(deadline_, batches); }
  const std::vector<Column>& columns() const override { return reader_->columns(); }
  std::string NoteOnData() const override {
    const v1::AbsentInputs absent = reader_->absent_inputs();
    if (absent.places().empty() || reader_->given() == 0) return "";
    return absl::StrCat(NamesOf(inputs_, absent.places()), absent.places_size() == 1 ? " is" : " are",
                        " in none of the examples of ", "data.train that the sample has read",
                        InFirstRecord(*parser_, *data_));
  }

 private:
  std::unique_ptr<LaneReader> reader_;
  std::optional<DataSet> data_;
  std::unique_ptr<LineParser> parser_;
  std::vector<NamedInput> inputs_;
  absl::Duration deadline_;
};

class MadeUpSteps : public JobSteps {
 public:
  MadeUpSteps(const Job& job, const v1::ProgramDesc& main) : spec_(MakeDataSpec(job.config, job.directory, main)) {}

  absl::Status Plan(const v1::ProgramDesc& main) {
    const v1::BlockDesc& block = main.blocks(0);
    std::set<std::string> read, written;
    std::map<std::string, int64_t> heights;  // of the lowest matrix that an ids variable reads
    std::map<std::string, const v1::VarDesc*> vars;
    for (const v1::VarDesc& var : block.vars()) vars[var.name()] = &var;
    for (const v1::OpDesc& op : block.ops()) {
      std::vector<const v1::VarDesc*> inputs;
      for (const v1::OpSlot& slot : op.inputs()) {
        read.insert(slot.vars().begin(), slot.vars().end());
        for (const std::string& name : slot.vars()) {
          if (vars.contains(name)) inputs.push_back(vars.at(name));
        }
      }
      for (const v1::OpSlot& slot : op.outputs()) written.insert(slot.vars().begin(), slot.vars().end());
      for (const v1::VarDesc* ids : inputs) {
        for (const v1::VarDesc* matrix : inputs) {
          if (ids->kind() != v1::IDS || matrix->kind() != v1::DENSE || !matrix->is_parameter()) continue;
          const auto [at, fresh] = heights.emplace(ids->name(), matrix->dims(0));
          if (!fresh) at->second = std::min(at->second, matrix->dims(0));
        }
      }
    }
    for (const v1::VarDesc& var : block.vars()) {
      if (var.persistable() || written.contains(var.name()) || !read.contains(var.name())) continue;
      RETURN_IF_ERROR(AddColumn(main, var, heights));
    }
    return absl::OkStatus();
  }

  absl::Status Next(std::vector<LaneBatch>* batches) override {
    batches->resize(static_cast<size_t>(spec_.streams()));
    for (int lane = 0; lane < spec_.streams(); ++lane) {
      LaneBatch& batch = (*batches)[static_cast<size_t>(lane)];
      batch.examples = spec_.StreamBatch(lane);
      batch.ended = false;
      batch.vars.clear();
      for (size_t c = 0; c < columns_.size(); ++c) batch.vars.push_back(Fill(c, lane, batch.examples));
    }
    ++step_;
    return absl::OkStatus();
  }
  const std::vector<Column>& columns() const override { return columns_; }

 private:
  absl::Status AddColumn(const v1::ProgramDesc& main, const v1::VarDesc& var,
                         const std::map<std::string, int64_t>& heights) {
    const bool batched = var.dims_size() == 2 && var.dims(0) == -1 && var.dims(1) > 0;
    if (!batched || (var.kind() == v1::DENSE && var.dtype() != v1::FLOAT32) ||
        (var.kind() != v1::DENSE && var.kind() != v1::IDS)) {
      return absl::InvalidArgumentError(absl::StrCat("no batches can be generated for '", var.name(),
                                                     "': float32 [-1, n] and ids can; give the job data"));
    }
    columns_.push_back({.name = var.name(), .kind = var.kind(), .width = var.dims(1)});
    const auto height = heights.find(var.name());
    heights_.push_back(height == heights.end() ? 0 : height->second);
    classes_.push_back(0);
    positive_.push_back(false);
    for (const v1::OpDesc& op : main.blocks(0).ops()) {
      if (InputOf(op, "Probability") == var.name()) positive_.back() = true;
      const LossFacts* const loss = LossFactsOf(op.type());
      if (loss != nullptr && loss->several_numbers && InputOf(op, "Label") == var.name()) classes_.back() = 2;
    }
    for (const v1::LossDesc& loss : main.losses()) {
      if (loss.sample_weight() == var.name()) positive_.back() = true;
      if (loss.label() != var.name() || loss.kind() == v1::LossDesc::REGRESSION) continue;
      classes_.back() = 2;
      if (loss.kind() != v1::LossDesc::MULTI_CLASS) continue;
      for (const v1::VarDesc& prediction : main.blocks(0).vars()) {
        if (prediction.name() == loss.prediction() && prediction.dims_size() == 2) classes_.back() = prediction.dims(1);
      }
    }
    return absl::OkStatus();
  }

  Variable Fill(size_t c, int lane, int64_t examples) const {
    const Column& column = columns_[c];
    const uint64_t key = StableHash(absl::StrCat(column.name, "/", spec_.seed, "/", step_, "/", lane));
    const auto random = [key](int64_t i, int64_t j) {
      return Philox(key, static_cast<uint64_t>(i), static_cast<uint64_t>(j)).v[0];
    };
    if (column.kind == v1::IDS) {
      IdBatch ids{.slots = column.width};
      ids.offsets.push_back(0);
      for (int64_t b = 0; b < examples; ++b) {
        for (int64_t slot = 0; slot < column.width; ++slot) {
          const int64_t range = heights_[c] > 0 ? heights_[c] : 50 + 20 * slot;
          ids.values.push_back(static_cast<int64_t>(random(b, slot)) % range);
          ids.offsets.push_back(static_cast<int64_t>(ids.values.size()));
        }
      }
      return ids;
    }
    Tensor values(v1::FLOAT32, {examples, column.width});
    float* to = values.data<float>();
    for (int64_t b = 0; b < examples; ++b) {
      for (int64_t j = 0; j < column.width; ++j) {
        const uint32_t r = random(b, j);
        const float u = static_cast<float>(r >> 8) / 8388608.0f - 1;  // [-1, 1)
        *to++ = classes_[c] > 0 ? static_cast<float>(r % static_cast<uint64_t>(classes_[c]))
                : positive_[c]  ? 1.5f + u / 2
                                : u;
      }
    }
    return values;
  }

  const DataSpec spec_;
  std::vector<Column> columns_;
  // Limits by column.
  std::vector<int64_t> heights_;  // ids below; 0: any
  std::vector<int64_t> classes_;  // labels below; 0: any float
  std::vector<bool> positive_;
  int64_t step_ = 0;
};

}  // namespace

BatchInput BatchInputOf(const std::vector<LaneBatch>& batches, const std::vector<Column>& columns) {
  BatchInput input;
  for (const LaneBatch& batch : batches) {
    input.push_back({.examples = batch.examples});
    for (size_t c = 0; c < columns.size(); ++c) {
      if (const IdBatch* ids = std::get_if<IdBatch>(&batch.vars[c])) input.back().ids[columns[c].name] = ids;
    }
  }
  return input;
}

absl::StatusOr<std::unique_ptr<JobSteps>> JobSteps::OfData(const Job& job, const v1::ProgramDesc& main,
                                                           ThreadPool* pool) {
  auto steps = std::make_unique<DataSteps>();
  RETURN_IF_ERROR(steps->Open(job, main, pool));
  return std::unique_ptr<JobSteps>(std::move(steps));
}

absl::StatusOr<std::unique_ptr<JobSteps>> JobSteps::MadeUp(const Job& job, const v1::ProgramDesc& main) {
  auto steps = std::make_unique<MadeUpSteps>(job, main);
  RETURN_IF_ERROR(steps->Plan(main));
  return std::unique_ptr<JobSteps>(std::move(steps));
}

}  // namespace weir
