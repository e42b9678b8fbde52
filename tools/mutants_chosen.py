"""Serious mistakes that the tests must see (tools/mutants --chosen).

Each replaces text that stands exactly once in its file. The text may run over lines; the tokens that differ must be
part of an expression, or whole statements. With `tests` these must see it, else any near the file.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chosen:
    id: str
    file: str
    old: str
    new: str
    tests: tuple = ()


CHOSEN = [
    # Optimizers.
    Chosen(
        "adam-epsilon-without-root",
        "ops/adam_math.h",
        "epsilon * bias.root",
        "epsilon",
        tests=("//tests/ops:optimizers_test",),
    ),
    Chosen("adam-without-bias-correction", "ops/adam_math.h", "lr * bias.rate", "lr"),
    Chosen("adam-second-moment-of-g", "ops/adam_math.h", "c.rest2 * (g * g)", "c.rest2 * g"),
    Chosen("clip-by-norm-never", "ops/clip_by_norm.cc", "out[i] = x[i] * factor", "out[i] = x[i]"),
    Chosen("delay-compensation-sign", "ops/delay_compensate.cc", "(now[i] - read[i])", "(read[i] - now[i])"),
    Chosen("schedule-counts-from-one", "ops/lr_count.cc", "? step + 1 : step;", "? step + 2 : step;"),
    # The order of addition, and averages.
    Chosen(
        "lane-order-of-eight-rows",
        "pserver/client/lane_sums.cc",
        "((a[j] + b[j]) + (c[j] + d[j])) + ((e[j] + f[j]) + (g[j] + h[j]))",
        "((a[j] + e[j]) + (b[j] + f[j])) + ((c[j] + g[j]) + (d[j] + h[j]))",
        tests=("//tests/e2e:equality_test",),
    ),
    Chosen(
        "lane-order-of-eight-of-sixteen",
        "pserver/client/lane_sums.cc",
        "if (end - begin == 8 && leaves_ == 8) {",
        "if (end - begin == 8) {",
        tests=("//tests/pserver/server:cluster_equality_test",),
    ),
    Chosen(
        "lane-order-of-eight-blocks",
        "pserver/protocol/merge_gradients.cc",
        "((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]))",
        "((((((a[i] + b[i]) + c[i]) + d[i]) + e[i]) + f[i]) + g[i]) + h[i]",
    ),
    # Rows pulled ahead of their step.
    Chosen(
        "removed-rows-forgotten",
        "pserver/tables/stripe.h",
        "    changes.Add(mixed);\n",
        "",
        tests=("//tests/e2e:exact_prefetch_test",),
    ),
    Chosen(
        "updated-rows-forgotten",
        "pserver/tables/sparse_table.cc",
        "for (const int64_t id : ids) stripe.changes.Add(MixId(static_cast<uint64_t>(id)));",
        "",
        tests=("//tests/e2e:exact_prefetch_test",),
    ),
    Chosen(
        "updated-rows-of-parameters-forgotten",
        "pserver/server/dense_block.cc",
        "  if (task.round < 0 && !changes_.all) RecordRows();\n",
        "",
        tests=("//tests/e2e:exact_prefetch_test",),
    ),
    # Updates shared out among trainers.
    Chosen(
        "updated-rows-stay-with-their-trainer",
        "pserver/embedded/dense_replica.cc",
        "GatherStep(rows)",
        "GatherStep(std::map<int, std::vector<int64_t>>())",
        tests=("//tests/pserver/embedded:sharded_channel_test",),
    ),
    Chosen(
        "shared-norms-of-the-step-before",
        "pserver/embedded/shared_norms.cc",
        "  norms_.clear();\n",
        "",
        tests=("//tests/pserver/embedded:shared_norms_test",),
    ),
    Chosen(
        "shared-norms-by-own-samples",
        "pserver/embedded/shared_norms.cc",
        "gradients_(samples)",
        "gradients_(1)",
        tests=("//tests/pserver/embedded:shared_norms_test",),
    ),
    Chosen(
        "shared-norms-that-are-none",
        "pserver/embedded/shared_norms.cc",
        "if (std::isfinite(norm.norm()) && norm.norm() >= 0) norms",
        "norms",
        tests=("//tests/pserver/embedded:shared_norms_test",),
    ),
    Chosen(
        "norms-of-the-first-share",
        "pserver/embedded/dense_replica.cc",
        "AddSums(reply, &totals)",
        "AddSums(t > 0 ? v1::NormsReply() : reply, &totals)",
        tests=("//tests/pserver/embedded:sharded_channel_test",),
    ),
    Chosen(
        "lane-tree-border",
        "framework/runtime/lane_tree.cc",
        "present[split].begin < middle",
        "present[split].begin <= middle",
        tests=("//tests/framework/runtime:lane_tree_test",),
    ),
    Chosen(
        "samples-of-the-last-trainer-only",
        "pserver/server/server_params.cc",
        "task.samples += trainer.samples;",
        "task.samples = trainer.samples;",
    ),
    Chosen(
        "rows-divided-twice",
        "pserver/server/param_table.cc",
        "return rows_->UpdateStripe(stripe, sums.rows.ids, sums.rows.grads.data(), sums.divisor,",
        "return rows_->UpdateStripe(stripe, sums.rows.ids, sums.rows.grads.data(), sums.divisor * sums.divisor,",
    ),
    # Steps and versions.
    Chosen(
        "duplicate-part-counts-twice",
        "pserver/server/step_book.cc",
        "return static_cast<size_t>(part) < parts.size() &&",
        "return part != 0 && static_cast<size_t>(part) < parts.size() &&",
    ),
    Chosen(
        "applied-step-applied-again",
        "pserver/server/async_steps.cc",
        "return step <= At(trainer).applied_step;",
        "return step < At(trainer).applied_step;",
    ),
    Chosen(
        "skipped-step-takes-effect",
        "pserver/server/sync_steps.cc",
        ".effective = !next_.ended && !next_.skipped,",
        ".effective = !next_.ended,",
    ),
    Chosen(
        "update-beside-a-read",
        "pserver/server/sync_steps.cc",
        "update_due_ = complete && reads_ > 0;",
        "update_due_ = false;",
    ),
    Chosen(
        "read-beside-a-load",
        "pserver/server/server_core_pulls.cc",
        "return mode_->MayRead(request) && !controls_.sets_values();",
        "return mode_->MayRead(request);",
    ),
    Chosen("async-version-stands", "pserver/server/async_steps.cc", "++version_.version;", ""),
    Chosen(
        "pull-of-the-version-before",
        "pserver/server/sync_steps.cc",
        "return version_.version >= request.version()",
        "return version_.version + 1 >= request.version()",
    ),
    Chosen(
        "trainer-asks-for-the-step-before",
        "pserver/client/client.cc",
        "version_wanted_ = step + 1;",
        "version_wanted_ = step;",
    ),
    Chosen("staleness-one-more", "pserver/server/staleness_gate.cc", "step - 1 - bound_", "step - 2 - bound_"),
    Chosen(
        "geo-sums-instead-of-mean",
        "pserver/embedded/geo_channel.cc",
        "*to = (now.data<float>()[at] - base[at]) / trainers_;",
        "*to = (now.data<float>()[at] - base[at]);",
    ),
    # Leases, callers, damaged bytes.
    Chosen(
        "lease-the-wrong-way",
        "framework/membership/roster.cc",
        "now <= place.lease_until",
        "now >= place.lease_until",
    ),
    Chosen(
        "no-grace-for-a-server-that-overslept",
        "framework/membership/roster.cc",
        "if (overslept) {",
        "if (overslept && false) {",
        tests=("//tests/pserver/server:server_core_test", "//tests/pserver/cluster:cluster_test"),
    ),
    Chosen(
        "end-after-three-leases",
        "framework/membership/roster.cc",
        "failed_at_ > 2 * options_.lease",
        "failed_at_ > 3 * options_.lease",
        tests=("//tests/pserver/server:server_core_test",),
    ),
    Chosen(
        "waits-for-the-dead-of-a-failed-job",
        "framework/membership/roster.cc",
        "m.told || gone(m) || silent(m)",
        "m.told || gone(m)",
        tests=("//tests/pserver/server:server_core_test",),
    ),
    Chosen(
        "former-holder-of-a-lease-goes-on",
        "framework/membership/roster.cc",
        "holder.session != caller.session()",
        "false",
    ),
    Chosen(
        "released-server-is-watched",
        "pserver/client/heartbeats.cc",
        "silence > lease && !server.released",
        "silence > lease",
        tests=("//tests/pserver/client:client_ends_test",),
    ),
    Chosen(
        "last-word-to-those-who-know-it",
        "pserver/client/heartbeats.cc",
        "heard->by(server) || of.knows_failure",
        "heard->by(server)",
        tests=("//tests/pserver/client:client_failures_test",),
    ),
    Chosen(
        "last-word-waits-for-the-dead",
        "pserver/client/heartbeats.cc",
        "now - of.last_heard <= settings_.lease",
        "now - of.last_heard <= 1000 * settings_.lease",
        tests=("//tests/pserver/client:client_failures_test",),
    ),
    Chosen(
        "push-checksum-not-compared",
        "pserver/server/push_reader.cc",
        "checksums_ && request.checksum() != checksum",
        "false",
    ),
    Chosen(
        "pull-checksum-not-compared",
        "pserver/client/pull_calls.cc",
        "!check || header.checksum() == values.Checksum()",
        "true",
    ),
    Chosen(
        "residual-forgotten",
        "pserver/client/residuals.cc",
        "const float sum = value + left;",
        "const float sum = value + 0 * left;",
    ),
    # Placement.
    Chosen(
        "hash-with-another-seed",
        "transpiler/dispatchers/hash_name.cc",
        "StableHash(block.name())",
        "StableHash(block.name().data(), block.name().size(), 1)",
    ),
    Chosen(
        "round-robin-moved-by-assigned",
        "transpiler/dispatchers/round_robin.cc",
        "assigned >= 0 ? assigned :",
        "assigned >= 0 ? (++cursor, assigned) :",
        tests=("//tests/transpiler/passes:placement_test",),
    ),
    Chosen(
        "balanced-smallest-first",
        "transpiler/dispatchers/balanced.cc",
        "weights[a] > weights[b]",
        "weights[a] < weights[b]",
    ),
    Chosen(
        "slice-rounds-rows-down",
        "transpiler/passes/slice_variables.cc",
        "size = (size + row - 1) / row * row;",
        "size = size / row * row;",
    ),
    Chosen(
        "slice-border-off-by-one",
        "transpiler/passes/slice_variables.cc",
        "begin += count;",
        "begin += count - 1;",
    ),
    # Rows that come and go.
    Chosen(
        "row-age-without-wrap",
        "pserver/tables/lifecycle_rules.h",
        "static_cast<int32_t>(now - last)",
        "static_cast<int64_t>(now) - static_cast<int64_t>(last)",
    ),
    Chosen("evicts-the-newest", "pserver/tables/lifecycle_rules.h", "(UINT32_MAX - age)", "(age)"),
    Chosen("row-expires-a-step-late", "pserver/tables/lifecycle_rules.h", ">= ttl_steps_;", "> ttl_steps_;"),
    Chosen(
        "admits-one-too-late",
        "pserver/tables/stripe_lifecycle.cc",
        ">= rules_->admit_after()",
        "> rules_->admit_after()",
    ),
    Chosen(
        "decays-the-shows-only",
        "pserver/tables/lifecycle_words.cc",
        "FloatWord(words, places_.clicks) * rules_.decay()",
        "FloatWord(words, places_.clicks)",
    ),
    # Checkpoints.
    Chosen(
        "shard-not-synced",
        "framework/checkpoint/file.cc",
        "::fsync(fd_) != 0",
        "false",
        tests=("//tests/framework/checkpoint:durability_test",),
    ),
    Chosen(
        "directory-not-synced-after-publishing",
        "framework/checkpoint/directory.cc",
        """\
  if (::rename(from.c_str(), to.c_str()) == 0) {
    RETURN_IF_ERROR(SyncPath(dir));""",
        """\
  if (::rename(from.c_str(), to.c_str()) == 0) {""",
        tests=("//tests/framework/checkpoint:durability_test",),
    ),
    Chosen(
        "prune-keeps-one-less",
        "framework/checkpoint/directory.cc",
        "std::max(keep_last, 1)",
        "std::max(keep_last - (keep_last > 2), 1)",
        tests=("//tests/framework/checkpoint:directory_test",),
    ),
    Chosen(
        "the-worst-is-kept",
        "framework/checkpoint/directory.cc",
        "return x.eval_auc() > y.eval_auc();",
        "return x.eval_auc() < y.eval_auc();",
    ),
    Chosen(
        "manifest-checksum-not-compared",
        "framework/checkpoint/directory.cc",
        "DigestHex(StableHash(body)) != text->substr(head, 16)",
        "false",
    ),
    Chosen(
        "shard-checksum-not-compared",
        "framework/checkpoint/file.cc",
        "if (sum == expected.checksum()) return",
        "if (true) return",
    ),
    Chosen(
        "oldest-checkpoint-is-newest",
        "framework/checkpoint/directory.cc",
        "[](const CheckpointPath& a, const CheckpointPath& b) { return a.step < b.step; }",
        "[](const CheckpointPath& a, const CheckpointPath& b) { return a.step > b.step; }",
    ),
    Chosen(
        "resume-from-the-fastest-server",
        "trainer/checkpointing.cc",
        "std::max(steps[t], here) : std::min(steps[t], here)",
        "std::min(steps[t], here) : std::max(steps[t], here)",
        tests=("//tests/e2e:uneven_save_test",),
    ),
    Chosen(
        "resume-skips-one-batch-more", "trainer/data/lane.h", "{ skip_ = batches; }", "{ skip_ = batches + 1; }"
    ),
    # Data.
    Chosen("gzip-ends-with-its-first-member", "trainer/data/byte_source.cc", "inflateReset(&zlib_);", "return 0;"),
    Chosen(
        "gzip-cut-is-its-end",
        "trainer/data/byte_source.cc",
        """\
          if (between_members_) return 0;""",
        """\
          return 0;""",
    ),
    Chosen("line-at-a-border-twice", "trainer/data/line_source.cc", "if (offset_ >= end_ ||", "if (offset_ > end_ ||"),
    Chosen(
        "bucket-border-below",
        "trainer/data/features.cc",
        "std::upper_bound(b.begin(), b.end(), x)",
        "std::lower_bound(b.begin(), b.end(), x)",
    ),
    Chosen(
        "rare-id-counts-as-missing",
        "trainer/data/features.cc",
        "return RareId(slot.salt);",
        "return MissingId(slot.salt);",
    ),
    Chosen(
        "carriage-return-is-text",
        "trainer/data/line_source.cc",
        "length > 0 && text[length - 1] == '\\r' ? length - 1 : length",
        "length",
    ),
    Chosen(
        "damage-at-the-front-of-a-range-is-passed",
        "trainer/data/tf_record_source.cc",
        "source->checked_behind_ = source->offset_ >= end || end >= file.bytes;",
        "source->checked_behind_ = true;",
    ),
    Chosen(
        "example-parts-are-equal-within-each-round",
        "trainer/data/example_parts.cc",
        "const int64_t before = dealt(last, stream) - dealt(first, stream);",
        "const int64_t before = dealt(last - first, stream);",
    ),
    Chosen(
        "draw-is-of-the-position-where-records-are-dealt",
        "trainer/data/example_stream.cc",
        "kDealtPlace | static_cast<uint64_t>(dealt_records_)",
        "static_cast<uint64_t>(position_.offset)",
    ),
    Chosen(
        "texts-pass-for-integers",
        "framework/formats/line_parser.cc",
        "(a == IdKind::kText) == (b == IdKind::kText)",
        "(a == IdKind::kHex) == (b == IdKind::kHex)",
    ),
    Chosen(
        "rounds-are-dealt-in-turn",
        "trainer/data/stream_rule.cc",
        "return (stream + first) % streams;",
        "return (stream + 0 * first) % streams;",
        tests=("//tests/trainer/data:stream_rule_test",),
    ),
    Chosen(
        "a-resume-cuts-by-the-present-rule",
        "trainer/job_data.cc",
        "spec_.stream_scheme = scheme;",
        "spec_.stream_scheme = scheme + kStreamScheme - scheme;",
        tests=("//tests/trainer:job_data_test",),
    ),
    # Metrics.
    Chosen(
        "auc-without-ties",
        "trainer/metrics.cc",
        "(2 * static_cast<__int128>(negatives_below) + negatives_[b])",
        "(2 * static_cast<__int128>(negatives_below))",
    ),
    Chosen(
        "loss-by-lanes",
        "trainer/metrics.cc",
        "loss[0] / static_cast<double>(result.samples)",
        "loss[0] / static_cast<double>(lanes_.size())",
    ),
    Chosen("merged-positives-lost", "trainer/metrics.cc", "positives_[b] += other.positives_[b];", ""),
    # Deaths, joins and resumes.
    Chosen(
        "table-steps-of-the-chief-after-a-resume",
        "pserver/server/server_core_control.cc",
        "runner_->SetTableSteps(loaded->table_steps);",
        "runner_->SetTableSteps(loaded->step);",
    ),
    Chosen(
        "border-of-a-step-under-way",
        "pserver/server/table_steps.cc",
        "next_border_ = under_way_.empty() ? count_ : *under_way_.begin();",
        "next_border_ = count_;",
    ),
    Chosen(
        "joins-while-its-step-takes-effect",
        "pserver/server/server_core_members.cc",
        "mode_->Applies(id) && place.state == RosterPlace::kDead",
        "mode_->Applies(id) && place.state == RosterPlace::kAbsent",
    ),
    Chosen("refused-join-is-kept", "pserver/client/membership.cc", "leave.set_leave(true);", ""),
    Chosen("failed-join-is-not-reported", "pserver/client/membership.cc", "ReportFailure(joined);", ""),
    Chosen(
        "failure-heard-of-is-not-passed-on",
        "pserver/client/job_view.cc",
        "if (expelled_) return std::nullopt;",
        "if (expelled_ || !failure_.ok()) return std::nullopt;",
    ),
    Chosen(
        "late-joiner-gets-no-code",
        "pserver/server/server_core_members.cc",
        "joined.set_failure_code(static_cast<int>(failure.code()));",
        "",
    ),
    Chosen("explain-without-whole-tables", "transpiler/explain/explain_plan.cc", "dense + whole", "dense"),
    Chosen(
        "explain-replies-without-first-samples",
        "transpiler/explain/step_traffic.cc",
        "reply.set_first_samples(plan.batch_size());",
        "",
        tests=("//tests/e2e:explain_test",),
    ),
    # The wire.
    Chosen(
        "int8-scale-of-the-first",
        "framework/wire/codecs.cc",
        "most = std::max(most, std::bit_cast<uint32_t>(in[i]) & 0x7fffffffu);",
        "most = std::max(most, std::bit_cast<uint32_t>(in[0]) & 0x7fffffffu);",
    ),
    Chosen("frame-length-not-checked", "framework/wire/frame.cc", "if (length.value > left_) return Cut();", ""),
    Chosen(
        "ipv6-host-is-looked-up-with-brackets",
        "pserver/network/local_address.cc",
        "to.BareHost().c_str()",
        "to.host.c_str()",
        tests=("//tests/pserver/network:local_address_test",),
    ),
    Chosen(
        "ipv6-host-of-a-trainer-keeps-its-brackets",
        "trainer/trainer_main.cc",
        "own.BareHost()",
        "own.host",
        tests=("//tests/e2e/processes:foreign_launchers_test",),
    ),
    # Operations among ranks.
    Chosen(
        "collective-lanes-one-after-another",
        "framework/collective/reduction.cc",
        "return TreeAdds(present, lanes_);",
        "std::vector<LaneAdd> chain; for (size_t i = 1; i < present.size(); ++i) "
        "chain.push_back({0, static_cast<int>(i)}); return chain;",
        tests=("//tests/framework/collective:collective_test",),
    ),
    Chosen(
        "collective-zeros-for-absent",
        "framework/collective/reduction.cc",
        "if (to != stored(0)) std::memcpy(to, stored(0), static_cast<size_t>(size) * sizeof(Stored));",
        "for (int64_t i = 0; i < size; ++i) to[i] = Narrow<Stored>(Widen(stored(0)[i]) + SumType());",
        tests=("//tests/framework/collective:collective_test",),
    ),
    Chosen(
        "collective-last-message-not-added",
        "framework/collective/reduce_run.cc",
        "reducer_.Reduce(addends, samples_, run.count, result + offset, lost);",
        "reducer_.Reduce(addends, samples_, m == 0 || m + 1 < messages_ ? run.count : 0, result + offset, lost);",
        tests=("//tests/framework/collective:collective_test",),
    ),
    Chosen(
        "collective-deadline-of-one-is-not-told",
        "framework/collective/mesh.h",
        "absl::IsDeadlineExceeded(status) ? absl::AbortedError(status.message()) : status",
        "status",
        tests=("//tests/framework/collective:collective_failures_test",),
    ),
    Chosen(
        "collective-tried-again-only-in-a-wait",
        "pserver/collective/wire_mesh.cc",
        "state->due.emplace(Now() + message->pause, message);",
        "",
        tests=("//tests/pserver/collective:wire_mesh_test",),
    ),
    Chosen(
        "any-order-absent-is-not-zero",
        "framework/collective/any_order_run.cc",
        "std::memset(At(begin), 0, bytes);",
        "std::memset(At(begin), 0, 0);",
        tests=("//tests/framework/collective:any_order_test",),
    ),
    Chosen(
        "any-order-addend-is-not-added",
        "framework/collective/any_order_run.cc",
        "if (IsResult(q)) return absl::OkStatus();",
        "if (IsResult(q + 1)) return absl::OkStatus();",
        tests=("//tests/framework/collective:any_order_test",),
    ),
    Chosen(
        "adasum-divides-by-zero",
        "framework/collective/adasum.cc",
        "own > 0 ? 1 - both / (2 * own) : 1",
        "1 - both / (2 * own)",
        tests=("//tests/framework/collective:adasum_test",),
    ),
    Chosen(
        "adasum-of-own-blocks-alone",
        "framework/collective/adasum_run.cc",
        "whole[segment] += by_rank[r][next[r]++];",
        "if (r == rank) whole[segment] += by_rank[r][next[r]++];",
        tests=("//tests/framework/collective:adasum_test",),
    ),
    Chosen(
        "owner-forgets-what-rounding-takes",
        "framework/collective/reduction.cc",
        "if (std::isfinite(rest)) lost[begin + i] += rest;",
        "",
        tests=("//tests/framework/collective:any_order_test",),
    ),
    Chosen(
        "residual-of-a-skipped-step",
        "pserver/embedded/compressed_sum.cc",
        "left[i] = std::isfinite(rest) ? rest : 0;",
        "left[i] = const_cast<float*>(residuals.data())[i] = std::isfinite(rest) ? rest : 0;",
        tests=("//tests/pserver/embedded:compressed_sum_test",),
    ),
    Chosen(
        "overflow-on-the-way-takes-effect",
        "pserver/embedded/all_reduce_channel.cc",
        "!Unpack()",
        "(Unpack(), false)",
        tests=("//tests/pserver/embedded:all_reduce_sums_test",),
    ),
    Chosen(
        "measurements-are-compressed",
        "pserver/embedded/all_reduce_channel.cc",
        "plain = tells_apart && parts_[p].plain;",
        "plain = false && tells_apart;",
        tests=("//tests/pserver/embedded:all_reduce_sums_test",),
    ),
    Chosen(
        "a-clamped-gradient-leaves-a-residual",
        "pserver/client/residuals.cc",
        "std::isfinite(lost) && !beyond ? lost : 0",
        "std::isfinite(lost) ? lost : 0",
        tests=("//tests/pserver/client:residuals_test",),
    ),
    Chosen(
        "a-residual-makes-its-gradient-infinite",
        "pserver/client/residuals.cc",
        "return std::isfinite(sum) ? sum : value;",
        "return sum;",
        tests=("//tests/pserver/client:residuals_test",),
    ),
    Chosen(
        "residuals-are-consumed-by-steps-without-effect",
        "pserver/client/pusher.cc",
        "residuals_.Drop();",
        "residuals_.Keep();",
        tests=("//tests/pserver/client:client_exchanges_test",),
    ),
    Chosen(
        "skipped-steps-do-not-look-at-parameters",
        "trainer/session.cc",
        "if (was.empty()) return absl::OkStatus();",
        "if (was.size() < 100'000) return absl::OkStatus();",
        tests=("//tests/e2e:unprepared_data_test",),
    ),
    Chosen(
        "no-counts-for-a-lane-without-ids",
        "trainer/gradient_sums.cc",
        ".counts = block->counts ? &sum.out_counts : nullptr",
        ".counts = block->counts && !sum.counts.empty() ? &sum.out_counts : nullptr",
        tests=("//tests/trainer:gradient_sums_test",),
    ),
    Chosen(
        "norms-go-beside-the-shared-memory",
        "pserver/network/grpc_transport.cc",
        "IsBulk(method) || method == Method::kNorms",
        "IsBulk(method) && method != Method::kNorms",
        tests=("//tests/pserver/network:grpc_test",),
    ),
    # Processes that are ending, stopped, or gone.
    Chosen(
        "rows-on-disk-of-a-dying-server-are-refused",
        "pserver/tables/cold_rows.cc",
        "if (now >= begun + lock_wait_) return status;",
        "if (now >= begun) return status;",
        tests=("//tests/pserver/tables:cold_rows_test",),
    ),
    # Peers that are no trainers.
    Chosen(
        "open-calls-without-a-limit",
        "pserver/network/reset_guard.cc",
        "counts.started - counts.answered - counts.abandoned > kMostOpenCalls",
        "counts.started - counts.started > kMostOpenCalls",
        tests=("//tests/pserver/network:reset_guard_test",),
    ),
    # Letter a.
    Chosen(
        "owner-thread-without-message",
        "framework/checkpoint/owner.cc",
        'thread_ = StartThread("weir-owner", [this] { Beats(); });',
        "thread_ = std::thread([this] { Beats(); });",
        tests=("//tests/framework/checkpoint:owner_thread_test",),
    ),
    Chosen(
        "launch-waits-for-frozen-trainers",
        "tools/launcher.cc",
        "  if (trainers && ended == Kind::kTrainer) return;\n",
        "  if (trainers) return;\n",
        tests=("//tests/tools:launch_test",),
    ),
    Chosen(
        "launch-does-not-continue-stopped-processes",
        "tools/launcher.cc",
        "if (signal != SIGKILL) member.process->Signal(SIGCONT);",
        "",
        tests=("//tests/tools:launch_test",),
    ),
    Chosen(
        "launch-waits-for-silent-processes-after-a-signal",
        "tools/launcher.cc",
        "  timers_.silent_until = now + options_.progress_deadline;\n",
        "",
        tests=("//tests/tools:launch_test",),
    ),
    Chosen(
        "commands-outlive-a-killed-trainer",
        "trainer/data/piped_command.cc",
        "  guard.Announce(getpid());\n",
        "",
        tests=("//tests/trainer/data:piped_command_test",),
    ),
    Chosen(
        "command-guard-kills-groups-that-have-left",
        "trainer/data/command_guard.cc",
        "!Tell('-', group)",
        "false",
        tests=("//tests/trainer/data:command_guard_test",),
    ),
    Chosen(
        "closed-standard-output-is-left-closed",
        "framework/base/inherited_state.cc",
        "fd <= STDERR_FILENO",
        "fd < STDIN_FILENO",
        tests=("//tests/framework/base:inherited_state_test",),
    ),
    Chosen(
        "file-limit-ends-a-program",
        "framework/base/inherited_state.cc",
        "  ::signal(SIGXFSZ, SIG_IGN);\n",
        "",
        tests=("//tests/framework/base:inherited_state_test",),
    ),
    Chosen(
        "kill-for-memory-unexplained",
        "tools/launcher.cc",
        "  if (!kill_explained_.empty()) Say(kill_explained_);\n".strip(),
        "",
        tests=("//tests/tools:launch_test",),
    ),
    Chosen(
        "kills-of-the-group-not-counted",
        "tools/memory_shortage.cc",
        "(!found || most >= 0)",
        "!found",
        tests=("//tests/tools:memory_shortage_test",),
    ),
    Chosen(
        "job-from-a-pipe-not-handed-on",
        "tools/launch_main.cc",
        "if (IsStream(options->job)) RETURN_IF_ERROR(KeepJob(text, options));",
        "",
        tests=("//tests/tools:launch_test",),
    ),
    Chosen(
        "paths-of-a-job-from-a-pipe-below-dev",
        "transpiler/job/load_job.cc",
        "if (!IsStream(file)) job.directory",
        "job.directory",
        tests=("//tests/transpiler/job:job_test",),
    ),
    Chosen(
        "sockets-refused-where-the-directory-is-taken",
        "pserver/network/unix_socket.cc",
        "if (!absl::IsAlreadyExists(made)) return made;",
        "return made;",
        tests=("//tests/pserver/network:grpc_test",),
    ),
    # Outputs (P03).
    Chosen(
        "output-replaces-a-link",
        "framework/base/atomic_file.cc",
        "  if (links == Links::kFollow) {\n    ASSIGN_OR_RETURN(target, FollowLinks(path));",
        "  if (links == Links::kFollow && path.empty()) {\n    ASSIGN_OR_RETURN(target, FollowLinks(path));",
        tests=("//tests/framework/base:atomic_file_test",),
    ),
    Chosen(
        "output-replaces-a-device",
        "framework/base/atomic_file.cc",
        "if (target.own >= 0 || (mode != 0 && !S_ISREG(mode))) {",
        "if (target.own >= 0) {",
        tests=("//tests/framework/base:atomic_file_test",),
    ),
    Chosen(
        "output-descriptor-opened-by-name",
        "framework/base/atomic_file.cc",
        "    if (target.own >= 0) return target;\n",
        "",
        tests=("//tests/framework/base:atomic_file_test",),
    ),
    Chosen(
        "npz-into-a-pipe",
        "framework/checkpoint/file.cc",
        "  if (patched && file->direct() &&",
        "  if (!patched && file->direct() &&",
        tests=("//tests/framework/checkpoint:npz_test",),
    ),
    # What a save removes (H6).
    Chosen(
        "save-removes-directories-with-other-files",
        "framework/checkpoint/directory.cc",
        "if (!S_ISREG(info.st_mode) || !IsFileOfCheckpoint(name))",
        "if (!S_ISREG(info.st_mode))",
        tests=("//tests/framework/checkpoint:directory_test",),
    ),
    Chosen(
        "save-removes-any-trash",
        "framework/checkpoint/directory.cc",
        "    if (IsTemporaryName(name) || IsTrashName(name)) {\n      RemoveOrLeave(dir, name);",
        "    if (IsTemporaryName(name) || name.starts_with(kTrashPrefix)) {\n      RemoveOrLeave(dir, name);",
        tests=("//tests/framework/checkpoint:directory_test",),
    ),
    Chosen(
        "save-removes-through-a-link",
        "framework/checkpoint/directory.cc",
        "O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC",
        "O_RDONLY | O_DIRECTORY | O_CLOEXEC",
        tests=("//tests/framework/checkpoint:directory_test",),
    ),
    # What readers refuse (H8).
    Chosen(
        "text-of-any-nesting",
        "framework/base/textproto.cc",
        "  parser.SetRecursionLimit(kMaxDepth);\n",
        "",
        tests=("//tests/framework/base:textproto_test",),
    ),
    Chosen(
        "fifo-is-waited-for",
        "framework/base/atomic_file.cc",
        "const int fd = ::open(path.c_str(), flags | O_NONBLOCK);",
        "const int fd = ::open(path.c_str(), flags);",
        tests=("//tests/framework/checkpoint:directory_test",),
    ),
    Chosen(
        "shard-bytes-claimed-twice",
        "framework/checkpoint/shard.cc",
        "if (claims[i].begin < claims[i - 1].end) {",
        "if (claims[i].begin < claims[i - 1].begin) {",
        tests=("//tests/framework/checkpoint:shard_test",),
    ),
    Chosen(
        "row-file-bytes-claimed-twice",
        "framework/checkpoint/row_file.cc",
        "if (claims[i].first < claims[i - 1].first + claims[i - 1].second) return",
        "if (claims[i].first < claims[i - 1].first) return",
        tests=("//tests/framework/checkpoint:row_file_test",),
    ),
    Chosen(
        "manifest-names-a-file-twice",
        "framework/checkpoint/directory.cc",
        "  RETURN_IF_ERROR(CheckNames(manifest, file));\n",
        "",
        tests=("//tests/framework/checkpoint:directory_test",),
    ),
    Chosen(
        "shard-written-through-a-link",
        "framework/checkpoint/file.cc",
        "O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC",
        "O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC",
        tests=("//tests/framework/checkpoint:directory_test",),
    ),
    Chosen(
        "board-writes-through-a-link",
        "pserver/rendezvous/file_board.cc",
        "const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;",
        "const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;",
        tests=("//tests/pserver/rendezvous:rendezvous_test",),
    ),
    # Data: numbers, marks, lines, weights, names (defects P05, P06, P07, P08, P11, P12).
    Chosen(
        "where-bound-in-float64",  # P05
        "framework/formats/row_filter.cc",
        "  return rule.from_float <= x && x < rule.below_float;",
        "  return rule.from <= x && x < rule.below;",
        tests=("//tests/framework/formats:row_filter_test",),
    ),
    Chosen(
        "bucketize-boundary-in-float64",  # P05
        "framework/formats/derived_columns.cc",
        "NearestFloat(boundary)",
        "std::nextafter(NearestFloat(boundary), 3e38f)",
        tests=("//tests/framework/formats:derived_test",),
    ),
    Chosen(
        "absent-input-is-no-error",  # P06
        "trainer/train_loop.cc",
        "  if (all.error.ok() && !all.stopped) all.error = data_->NoInputs(all.absent);\n",
        "",
        tests=("//tests/e2e/processes:bad_input_test",),
    ),
    Chosen(
        "inputs-of-lines-not-noticed",  # P06
        "trainer/data/example_stream.cc",
        "    } else if (Take(line, scratch)) {\n      Notice(*scratch);\n",
        "    } else if (Take(line, scratch)) {\n",
        tests=("//tests/trainer/data:seen_inputs_test",),
    ),
    Chosen(
        "tiny-numbers-are-refused",  # P07
        "framework/formats/numbers.h",
        "  if (std::fabs(nearest) > 1) return false;\n",
        "  return false;\n",
        tests=("//tests/framework/formats:numbers_test",),
    ),
    Chosen(
        "byte-order-mark-in-the-first-line",  # P08
        "trainer/data/line_source.cc",
        "    *line = WithoutByteOrderMark(*line);\n",
        "",
        tests=("//tests/trainer/data:data_set_test",),
    ),
    Chosen(
        "byte-order-mark-in-the-first-line-read-ahead",  # P08
        "trainer/data/lines_ahead.cc",
        "    if (*offset == 0) *line = WithoutByteOrderMark(*line);\n",
        "",
        tests=("//tests/trainer/data:lines_ahead_test",),
    ),
    Chosen(
        "part-looks-for-a-line-behind-its-end",  # P11
        "trainer/data/line_source.cc",
        "  while (offset_ < end_) {",
        "  while (true) {",
        tests=("//tests/trainer/data:data_set_test",),
    ),
    Chosen(
        "negative-sample-weights",  # P12
        "trainer/data/data_spec.cc",
        "    if (weight.empty() || IsWritten(block, weight) || !weights.insert(weight).second) continue;\n",
        "    continue;\n",
        tests=("//tests/trainer/data:features_test",),
    ),
    # Stops during passes over data (P16).
    Chosen(
        "evaluation-deaf-to-stop",
        "trainer/evaluations.cc",
        "o_.trainer.UntilStop()",
        "o_.trainer.KeepWaiting()",
        tests=("//tests/trainer:evaluations_test",),
    ),
    Chosen(
        "statistics-deaf-to-stop",
        "trainer/job_data.cc",
        "o_.trainer.UntilStop()",
        "o_.trainer.KeepWaiting()",
        tests=("//tests/trainer:job_data_test",),
    ),
    Chosen(
        "wait-for-a-batch-deaf-to-stop",
        "trainer/rounds.cc",
        "o_.follower == nullptr && o_.trainer.client->StopRequested()",
        "false",
        tests=("//tests/trainer:rounds_test",),
    ),
    Chosen(
        "prediction-deaf-to-stop",
        "trainer/predict.cc",
        'return o.client->StopRequested() ? absl::CancelledError("asked to stop") : absl::OkStatus();',
        "return absl::OkStatus();",
        tests=("//tests/e2e:predict_test",),
    ),
    # Texts of a resume (P10).
    Chosen(
        "renamed-job-is-damaged",
        "trainer/checkpointing.cc",
        "if (of_any.ok()) return OtherJob(of_any->manifest.job());",
        "",
        tests=("//tests/trainer:checkpointing_test",),
    ),
    Chosen(
        "epochs-are-never-the-reason",
        "trainer/rounds.cc",
        "o_.mode.accumulate() * o_.mode.workers() > 1;",
        "false;",
        tests=("//tests/trainer:rounds_test",),
    ),
    # A job beside its checkpoint's (P04).
    Chosen(
        "another-model-unseen",
        "transpiler/job/model_differences.cc",
        "if (was != is) found_.push_back(",
        "if (false) found_.push_back(",
        tests=("//tests/transpiler/job:model_differences_test",),
    ),
    Chosen(
        "another-model-unsaid-in-prediction",
        "trainer/predict.cc",
        "!difference.empty()",
        "false",
        tests=("//tests/e2e:predict_test",),
    ),
    # One example a lane (P02).
    Chosen(
        "one-example-a-lane-is-enough",
        "transpiler/model/model_context.cc",
        "if (job().data().batch_size() / batches != 1)",
        "if (job().data().batch_size() / batches != 0)",
        tests=("//tests/transpiler/layers:layers_test",),
    ),
    Chosen(
        "lone-examples-unsaid",
        "trainer/lone_examples.cc",
        "lone += lane.examples == 1 ? 1 : 0;",
        "lone += lane.examples == 0 ? 0 : 0;",
        tests=("//tests/trainer:lone_examples_test",),
    ),
    # Addresses and names of files (P14).
    Chosen(
        "url-is-ipv6",
        "pserver/cluster/endpoint.cc",
        "scheme != std::string_view::npos",
        "false",
        tests=("//tests/pserver/cluster:cluster_test",),
    ),
    Chosen(
        "parquet-is-text",
        "trainer/prediction_file.cc",
        "!ending.empty()",
        "false",
        tests=("//tests/trainer:prediction_file_test",),
    ),
    # Strangers: what refusals tell, what reaches logs, descriptors.
    Chosen(
        "refusal-names-the-group",
        "pserver/collective/wire_mesh.cc",
        '"this rank belongs to another collective group than the message: the caller is of another run of the job"',
        'absl::StrCat("this rank belongs to group ", absl::Hex(options_.group), ": another run of the job")',
        tests=("//tests/pserver/collective:wire_mesh_test",),
    ),
    Chosen(
        "refused-join-hears-the-difference",
        "pserver/server/server_core_members.cc",
        "  LogRefusal(who, why);\n  return absl::FailedPreconditionError(",
        "  if (!why.empty()) return absl::FailedPreconditionError(why);\n  return absl::FailedPreconditionError(",
        tests=("//tests/pserver/server:server_core_test",),
    ),
    Chosen(
        "failure-told-to-another-job",
        "pserver/server/server_core_members.cc",
        "(roster_->failure().ok() || !of_job)",
        "(roster_->failure().ok())",
        tests=("//tests/pserver/server:server_limits_test",),
    ),
    Chosen(
        "meeting-tells-its-job-to-another",
        "pserver/rendezvous/gathering.cc",
        "if (greeting.job_name() == own_.job_name()) return refusal;",
        "if (!refusal.ok()) return refusal;",
        tests=("//tests/pserver/rendezvous:rendezvous_test",),
    ),
    Chosen(
        "escape-sequences-pass",
        "framework/base/printable.cc",
        "Byte(character, 0) < 0x20 || Byte(character, 0) == 0x7f",
        "Byte(character, 0) == 0x7f",
        tests=("//tests/framework/base:printable_test",),
    ),
    Chosen(
        "failure-from-a-trainer-unescaped",
        "pserver/server/server_core_members.cc",
        "Printable(request.failure(), kMaxText)",
        "request.failure().substr(0, kMaxText)",
        tests=("//tests/pserver/server:server_core_test",),
    ),
    Chosen(
        "text-of-an-error-unescaped",
        "pserver/network/grpc_bytes.cc",
        "Printable(status.error_message(), 2 * kMaxStatusText)",
        "status.error_message()",
        tests=("//tests/pserver/network:grpc_test",),
    ),
    Chosen(
        "descriptor-limit-not-raised",
        "framework/base/exhausted.cc",
        "limit.rlim_cur = limit.rlim_max;",
        "limit.rlim_cur = limits_before.rlim_cur;",
        tests=("//tests/framework/base:exhausted_test",),
    ),
    Chosen(
        "silent-connections-take-every-descriptor",
        "pserver/network/reset_guard.cc",
        "few_left_ = limit - used < kept_;",
        "few_left_ = limit - used < 0;",
        tests=("//tests/pserver/network:reset_guard_test",),
    ),
    # Control calls, waits, followed files.
    Chosen(
        "delayed-control-call-done-again",
        "pserver/server/control_queue.cc",
        "request.has_request_id() && request.request_id() < made.newest_id",
        "request.has_request_id() && request.request_id() + 1000 < made.newest_id",
        tests=("//tests/pserver/server:control_queue_test",),
    ),
    Chosen(
        "every-deadline-rests-without-files",
        "pserver/client/calls.cc",
        "return !call->finished && call->needs_trainers;",
        "return !call->finished;",
        tests=("//tests/pserver/client:member_test",),
    ),
    Chosen(
        "others-go-on-in-sync",
        "pserver/client/heartbeats.cc",
        '(sync ? "the job ends, since a step needs all trainers" : "the others go on")',
        '(!sync ? "the job ends, since a step needs all trainers" : "the others go on")',
        tests=("//tests/pserver/client:member_test",),
    ),
    Chosen(
        "group-trained-on-before-it-is-posted",
        "trainer/follower.cc",
        "    if (files != nullptr) unposted.push_back(std::move(files));\n",
        "    if (files != nullptr) files_->Add(std::move(files));\n",
        tests=("//tests/e2e:follow_test",),
    ),
    # The plan for a reader (N11) has no mutant: a lock that is held longer changes no result.
    # H14 is a label in manifests: tests/python/test_kubernetes.py.
]
