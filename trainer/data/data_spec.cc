#include "trainer/data/data_spec.h"

#include <algorithm>

namespace weir {

int64_t DataSpec::StreamBatch(int stream) const {
  const int64_t n = streams();
  return config.batch_size() / n + (stream < config.batch_size() % n ? 1 : 0);
}

DataSpec MakeDataSpec(const v1::JobConfig& job, const std::string& directory,
                      const google::protobuf::RepeatedPtrField<v1::LossDesc>& losses) {
  DataSpec spec;
  spec.config = job.data();
  spec.directory = directory;
  spec.seed = job.train().seed();
  spec.lanes = job.train().lanes();
  spec.trainers = job.distribute().trainers();
  spec.epochs = job.train().epochs();
  const auto add = [](std::vector<std::string>* names, const std::string& name) {
    if (!name.empty() && std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
  };
  for (const v1::LossDesc& loss : losses) {
    add(&spec.required, loss.label());
    add(&spec.required, loss.sample_weight());
  }
  spec.never_transformed = spec.required;
  if (spec.config.dense().except_size() > 0) {
    spec.never_transformed.assign(spec.config.dense().except().begin(), spec.config.dense().except().end());
  }
  for (const v1::Layer& layer : job.model().layer()) {
    if (!layer.has_embedding() || !layer.embedding().has_padding_id()) continue;
    for (const std::string& ids : layer.embedding().ids()) {
      std::vector<int64_t>& padding = spec.padding_ids[ids];
      if (std::find(padding.begin(), padding.end(), layer.embedding().padding_id()) == padding.end()) {
        padding.push_back(layer.embedding().padding_id());
      }
    }
  }
  return spec;
}

}  // namespace weir
