// A small job with every kind of parameter, and its data: cut dense parameters, two distributed tables with optimizers
// of their own, statistics of the data, dropout.
#ifndef WEIR_TESTS_TESTING_JOBS_CLICK_JOB_H_
#define WEIR_TESTS_TESTING_JOBS_CLICK_JOB_H_

#include <string>

namespace weir {

// Job text. Cuts its largest parameter (deep.0.w, 221 x 256) into as many blocks as there are servers, reads 26 fields
// of a distributed table with Adagrad rows, and updates the tower with Adam. 200 steps, a digest after every 50th.
// Reads "train-*.tsv".
extern const char kClickJob[];

// Writes three files "train-<n>.tsv" of different length, 5,667 examples in all.
void WriteClickData(const std::string& directory);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_JOBS_CLICK_JOB_H_
