// Part of a trainer's programs that one trainer runs where all share the updates out (distribute.update is SHARDED).
#ifndef WEIR_PSERVER_REPLICA_UPDATE_SHARE_H_
#define WEIR_PSERVER_REPLICA_UPDATE_SHARE_H_

#include <cstdint>

#include "google/protobuf/repeated_field.h"
#include "proto/program.pb.h"

namespace weir {

// Removes what only other trainers update: blocks of the plan of `main` that name them (PlacedBlock.trainer), their
// optimize blocks from `blocks`, and from block 1 of `startup` the initial values of their pieces and states, so that
// they take no memory. lr_block: optimize block of the learning rates; -1: none.
void KeepShare(int trainer, int lr_block, v1::ProgramDesc* main, v1::ProgramDesc* startup,
               google::protobuf::RepeatedField<int32_t>* blocks);

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_UPDATE_SHARE_H_
