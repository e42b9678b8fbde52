// Dense parameters that no server holds: the value of PlacedBlock.server, and the bound of their buckets.
#ifndef WEIR_FRAMEWORK_GRAPH_PLACEMENT_H_
#define WEIR_FRAMEWORK_GRAPH_PLACEMENT_H_

namespace weir {

// Every trainer holds the block (distribute.dense is ALL_REDUCE). In attribute `servers` of recv: the trainer's own.
inline constexpr int kEveryTrainer = -1;

// Most dense parameters of one bucket (attribute of all_reduce): the segments that one collective operation can have.
inline constexpr int kMostInBucket = 64;

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_PLACEMENT_H_
