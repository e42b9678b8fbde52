// Any bytes as rows that another trainer has updated (pserver/replica/gathered_values.h). The first byte chooses the
// trainer.
#include <string>
#include <vector>

#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "pserver/replica/gathered_values.h"
#include "tests/fuzz/input.h"

namespace {

// Blocks of trainers 0 and 1: a dense one, and rows of one matrix.
std::vector<weir::v1::PlacedBlock> Blocks() {
  std::vector<weir::v1::PlacedBlock> blocks(3);
  for (int i = 0; i < 3; ++i) {
    weir::v1::PlacedBlock& block = blocks[static_cast<size_t>(i)];
    block.set_parameter(i == 0 ? "dense" : "held");
    block.set_server(-1);
    block.set_trainer(i % 2);
    block.set_element_begin(i == 2 ? 30 : 0);
    block.set_element_count(30);
    block.add_dims(10);
    block.add_dims(3);
    block.set_sparse_gradient(i > 0);
  }
  return blocks;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  // Bytes are read without the others, so one group serves all inputs.
  static auto* const meshes = new LocalMeshes(2);
  static auto* const collective = new Collective(meshes->mesh(0), Collective::Options());
  static auto* const values = new GatheredValues(Blocks(), collective);
  FuzzInput input(data, size);
  const int from = input.Byte() % 2;
  values->ReadRows(input.Rest(), from).IgnoreError();
  return 0;
}
