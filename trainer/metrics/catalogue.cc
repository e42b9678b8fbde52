#include "trainer/metrics/catalogue.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "framework/base/feature_id.h"
#include "framework/base/status_macros.h"
#include "framework/graph/var_index.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Vectors of the candidates in each trainer.
constexpr int64_t kMostBytes = int64_t{64} << 30;

// Returns the derived variable of a name, or null.
const v1::Derived* DerivedOf(const std::string& name, const v1::JobConfig& job, int* index = nullptr) {
  for (int i = 0; i < job.data().derived_size(); ++i) {
    if (job.data().derived(i).name() != name) continue;
    if (index != nullptr) *index = i;
    return &job.data().derived(i);
  }
  return nullptr;
}

// Returns the list of a variable that is a vocabulary; null for another one, or if it is not known.
std::shared_ptr<const IdList> ListOf(const IdVariable& id, const v1::JobConfig& job, const Learned* learned) {
  int index = 0;
  const v1::Derived* const derived = DerivedOf(id.name, job, &index);
  if (derived == nullptr || !derived->has_vocabulary() || learned == nullptr) return nullptr;
  return learned->ListOf(index);
}

// Checks that the ids of `variable` stand for items of the catalogue, and sets its list where they have to be looked up
// in that of the vocabulary `id`.
absl::Status ExpectIdsOf(const IdVariable& id, const v1::JobConfig& job, const std::vector<Column>& columns,
                         const std::shared_ptr<const IdList>& list, const std::string& path, IdVariable* variable) {
  if (variable->name == id.name) return absl::OkStatus();
  const v1::Derived* const of_id = DerivedOf(id.name, job);
  const v1::Derived* const other = DerivedOf(variable->name, job);
  const bool is_vocabulary = of_id != nullptr && of_id->has_vocabulary();
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": '", variable->name, "' ", why));
  };
  if (other != nullptr && other->has_vocabulary()) {
    // Places in one file are places in the other.
    const bool same = is_vocabulary && !other->vocabulary().file().empty() &&
                      other->vocabulary().file() == of_id->vocabulary().file();
    return same ? absl::OkStatus()
                : refuse(absl::StrCat("is a vocabulary of its own, whose places are not those of '", id.name,
                                      "'; name the variable that it is made of, or give both one file"));
  }
  if (other != nullptr && !other->has_negatives()) {
    return refuse(absl::StrCat("is derived, and its ids are not those of '", id.name, "'"));
  }
  if (!is_vocabulary) {
    return variable->is_text() == id.is_text() && of_id == nullptr
               ? absl::OkStatus()
               : refuse(absl::StrCat("has ids of another kind than '", id.name, "'"));
  }
  ASSIGN_OR_RETURN(const IdVariable words, IdVariable::Find(of_id->vocabulary().of(), job, columns));
  if (variable->is_text() != words.is_text()) {
    return refuse(absl::StrCat("has ", variable->is_text() ? "texts" : "numbers", ", and the vocabulary '", id.name,
                               "' ", words.is_text() ? "texts" : "numbers"));
  }
  variable->list = list;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<IdVariable> IdVariable::Find(const std::string& name, const v1::JobConfig& job,
                                            const std::vector<Column>& columns) {
  for (size_t c = 0; c < columns.size(); ++c) {
    const Column& column = columns[c];
    if (column.name != name || column.kind != v1::IDS) continue;
    IdVariable variable{.name = name, .column = c};
    const auto& shared = job.data().ids().shared();
    const std::string& ids_of = column.ids_of.empty() ? name : column.ids_of;
    variable.shared = std::find(shared.begin(), shared.end(), ids_of) != shared.end();
    for (const std::string& slot : column.slot_names) {
      variable.salts.push_back(SlotSalt(ids_of, variable.shared ? "" : slot));
    }
    if (!column.id_kinds.empty()) variable.kind = column.id_kinds[0];
    // Must equal MakeDataSpec (trainer/data/data_spec.cc).
    for (const v1::Layer& layer : job.model().layer()) {
      const v1::Embedding& embedding = layer.embedding();
      if (!embedding.has_padding_id()) continue;
      if (std::find(embedding.ids().begin(), embedding.ids().end(), name) == embedding.ids().end()) continue;
      variable.padding.push_back(embedding.padding_id());
    }
    return variable;
  }
  return absl::NotFoundError(absl::StrCat("'", name, "' is no ids of the data"));
}

int64_t IdVariable::Raw(size_t slot, int64_t id) const {
  if (shared) return id;
  for (const int64_t raw : padding) {
    if (id == PaddingId(raw)) return raw;
  }
  return static_cast<int64_t>(UnmixId(UnmixId(static_cast<uint64_t>(id)) ^ salts[slot]));
}
int64_t IdVariable::FromRaw(size_t slot, int64_t raw) const { return shared ? raw : SaltId(salts[slot], raw); }

absl::StatusOr<CataloguePlan> CataloguePlan::Create(const v1::Metric::Catalogue& catalogue, const v1::JobConfig& job,
                                                    const v1::ProgramDesc& program, const std::vector<Column>& columns,
                                                    const Learned* learned, const std::string& path) {
  CataloguePlan plan{
      .query = catalogue.query(), .item = catalogue.item(), .first = catalogue.first(), .items = catalogue.items()};
  ASSIGN_OR_RETURN(plan.id, IdVariable::Find(catalogue.id(), job, columns));
  const std::shared_ptr<const IdList> list = ListOf(plan.id, job, learned);
  if (catalogue.has_items() && plan.id.is_text()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ".items: '", catalogue.id(),
                                                   "' is texts, whose ids are no range of numbers; make a vocabulary "
                                                   "of it (data.derived) and leave `items` out"));
  }
  if (!catalogue.has_items()) {
    if (list != nullptr) plan.items = static_cast<int64_t>(list->ids().size());
    if (plan.items == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the vocabulary '", catalogue.id(), "' is not known: it must be learned, or a file"));
    }
  }
  for (const std::string& name : catalogue.without()) {
    ASSIGN_OR_RETURN(IdVariable variable, IdVariable::Find(name, job, columns));
    RETURN_IF_ERROR(ExpectIdsOf(plan.id, job, columns, list, path + ".without", &variable));
    plan.without.push_back(std::move(variable));
  }
  for (const std::string& name : {plan.query, plan.item}) {
    if (std::find(program.kept().begin(), program.kept().end(), name) != program.kept().end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the program does not keep '", name, "' for evaluations; transpile the job again"));
  }
  const v1::VarDesc* const item = program.blocks_size() == 0 ? nullptr : FindVar(program.blocks(0), plan.item);
  if (item == nullptr || item->dims_size() != 2 || item->dims(1) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".item: '", plan.item, "' is no variable [-1, W] of the program"));
  }
  plan.width = item->dims(1);
  if (plan.items > kMostBytes / (plan.width * static_cast<int64_t>(sizeof(float)))) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the vectors of ", plan.items, " candidates, ", plan.width, " numbers each, would take more than ",
        kMostBytes >> 30, " GiB in every trainer; evaluate on fewer candidates, or on a smaller vector"));
  }
  return plan;
}

int64_t CataloguePlan::CandidateOf(const IdVariable& variable, size_t slot, int64_t value) const {
  int64_t raw = variable.Raw(slot, value);
  if (variable.list != nullptr) {
    raw = variable.list->Find(raw);
    if (raw < 0) return -1;
  }
  const auto place = static_cast<uint64_t>(raw) - static_cast<uint64_t>(first);
  if (place >= static_cast<uint64_t>(items)) return -1;
  const auto candidate = static_cast<int64_t>(place);
  return IsPadding(candidate) ? -1 : candidate;
}

bool CataloguePlan::IsPadding(int64_t candidate) const {
  return std::find(id.padding.begin(), id.padding.end(), first + candidate) != id.padding.end();
}

void CatalogueQueries::SetItems(std::shared_ptr<const PackedItems> items, ThreadPool* pool) {
  CHECK(items->items() == plan_->items && items->width() == plan_->width);
  items_ = std::move(items);
  pool_ = pool;
}

void CatalogueQueries::TakeIds(const std::vector<LaneBatch>& batches) {
  lanes_.resize(batches.size());
  for (size_t lane = 0; lane < batches.size(); ++lane) {
    const LaneBatch& batch = batches[lane];
    const auto examples = static_cast<size_t>(batch.examples);
    LaneIds& ids = lanes_[lane];
    ids.item.assign(examples, -1);
    ids.without.clear();
    ids.without_end.clear();
    const IdBatch& items = std::get<IdBatch>(batch.vars[plan_->id.column]);
    for (size_t i = 0; i < examples; ++i) {
      // Several items, or none, are no candidate.
      if (items.offsets[i + 1] - items.offsets[i] == 1) {
        ids.item[i] = plan_->CandidateOf(plan_->id, 0, items.values[static_cast<size_t>(items.offsets[i])]);
      }
      for (const IdVariable& variable : plan_->without) {
        const IdBatch& known = std::get<IdBatch>(batch.vars[variable.column]);
        const auto slots = static_cast<size_t>(known.slots);
        for (size_t slot = 0; slot < slots; ++slot) {
          for (int64_t at = known.offsets[i * slots + slot]; at < known.offsets[i * slots + slot + 1]; ++at) {
            const int64_t candidate = plan_->CandidateOf(variable, slot, known.values[static_cast<size_t>(at)]);
            if (candidate >= 0) ids.without.push_back(candidate);
          }
        }
      }
      ids.without_end.push_back(ids.without.size());
    }
  }
}

absl::Status CatalogueQueries::Add(int lane, const Tensor& query, const std::vector<float>& labels,
                                   const std::function<void(size_t example)>& add) {
  const LaneIds& ids = lanes_[static_cast<size_t>(lane)];
  if (labels.size() != ids.item.size() || query.dtype() != v1::FLOAT32 ||
      query.size() != static_cast<int64_t>(labels.size()) * plan_->width) {
    return absl::InvalidArgumentError(absl::StrCat("'", plan_->query, "' is ", ShapeString(query.dims()),
                                                   "; expected float32 [", ids.item.size(), ", ", plan_->width, "]"));
  }
  const float* const vectors = query.data<float>();
  for (size_t i = 0; i < labels.size(); ++i) {
    // A missing label, a NaN, is no positive either.
    if (!(labels[i] >= 0.5f)) continue;
    const auto width = static_cast<size_t>(plan_->width);
    vectors_.insert(vectors_.end(), vectors + i * width, vectors + (i + 1) * width);
    items_of_.push_back(ids.item[i]);
    const size_t begin = i == 0 ? 0 : ids.without_end[i - 1];
    without_.insert(without_.end(), ids.without.begin() + static_cast<std::ptrdiff_t>(begin),
                    ids.without.begin() + static_cast<std::ptrdiff_t>(ids.without_end[i]));
    without_end_.push_back(without_.size());
    add(i);
  }
  return absl::OkStatus();
}

void CatalogueQueries::Rank(const Use& use) {
  if (items_of_.empty()) return;
  CHECK(items_ != nullptr) << "queries of a catalogue without its items";
  std::vector<RankQuery> queries;
  for (size_t i = 0; i < items_of_.size(); ++i) {
    if (items_of_[i] < 0) continue;
    const size_t begin = i == 0 ? 0 : without_end_[i - 1];
    queries.push_back({.vector = vectors_.data() + i * static_cast<size_t>(plan_->width),
                       .item = items_of_[i],
                       .without = std::span(without_).subspan(begin, without_end_[i] - begin)});
  }
  std::vector<ItemRank> ranks(queries.size());
  RankItems(*items_, queries, pool_, ranks.data());
  const ItemRank* rank = ranks.data();
  for (size_t i = 0; i < items_of_.size(); ++i) {
    const bool known = items_of_[i] >= 0;
    use(static_cast<int64_t>(i), known ? rank++ : nullptr);
    unknown_ += !known;
  }
  ranked_ += static_cast<int64_t>(items_of_.size());
  vectors_.clear();
  items_of_.clear();
  without_.clear();
  without_end_.clear();
}

}  // namespace weir
