//! Forward, backward for the input, backward for the weights: what each does, saves and leaves out.

use super::{FUSED, FUSED_AGAIN, GPT, SPLIT, SPLIT_AGAIN, compile, noise, sound, step};
use crate::stage_set::StageSet;
use crate::{Kinds, Model, abstract_stages, costs};
use pipe_ir::graph::Op;
use pipe_ir::ids::ValueId;
use pipe_ir::program::{Access, Body, Exec};
use pipe_ir::task::TaskKind;
use pipe_ir::value::{Value, ValueKind};
use pipe_schedule::stage_graph::StageGraph;

fn gpt(hidden: i64, sequence: i64) -> Model {
    sound(GPT, &[("vocab", 16), ("hidden", hidden), ("heads", 4), ("blocks", 4), ("sequence", sequence), ("rows", 2)])
}

fn exec(set: &StageSet, stage: usize, kind: TaskKind) -> &Exec {
    &set.execs[set.stages[stage].exec_of(kind).expect("it was asked for").index()]
}

fn products(exec: &Exec) -> usize {
    let Body::Graph(graph) = &exec.body else { panic!("a graph") };
    graph.nodes.iter().filter(|node| matches!(node.op, Op::MatMul { .. })).count()
}

fn value<'a>(set: &'a StageSet, name: &str) -> &'a Value {
    set.values.iter().find(|value| value.name == name).unwrap_or_else(|| panic!("no value {name}"))
}

#[test]
fn every_layout_and_split_gives_the_same_gradients_to_the_last_bit() {
    let model = gpt(8, 4);
    let whole = step(&compile(&model, 1, &FUSED, 3), 3, &noise);
    assert!(whole.gradients.values().all(|gradient| gradient.iter().any(|element| *element != 0.0)));
    for n_stages in [1, 2, 3, 6] {
        for kinds in [&FUSED[..], &SPLIT[..], &FUSED_AGAIN[..], &SPLIT_AGAIN[..]] {
            assert_eq!(step(&compile(&model, n_stages, kinds, 3), 3, &noise), whole, "{n_stages} stages, {kinds:?}");
        }
    }
}

#[test]
fn the_input_half_computes_no_weight_gradient() {
    let set = compile(&gpt(64, 16), 6, &SPLIT, 1);
    // A block has 4 products with weights, and attention. B: one for each weight, and all derivatives of attention.
    assert_eq!(products(exec(&set, 2, TaskKind::Forward)), 4);
    assert_eq!(products(exec(&set, 2, TaskKind::BackwardInput)), 4);
    assert_eq!(products(exec(&set, 2, TaskKind::BackwardWeight)), 4);
    let (forward, input) = (exec(&set, 2, TaskKind::Forward).flops, exec(&set, 2, TaskKind::BackwardInput).flops);
    assert!(input * 100 <= forward * 115, "B takes {input} operations, F {forward}");
    for exec in set.execs.iter().filter(|exec| exec.kind == TaskKind::BackwardInput) {
        let touches = |kind| exec.operands.iter().any(|operand| set.values[operand.value.index()].kind == kind);
        assert!(!touches(ValueKind::ParameterGradients), "{} touches weight gradients", exec.name());
        let stays = |exec: &Exec| !read(&set, exec, ValueKind::Gradient).is_empty();
        let half =
            set.stages[exec.stage.index()].exec_of(TaskKind::BackwardWeight).map(|half| &set.execs[half.index()]);
        assert!(touches(ValueKind::DeferredGradient) || half.is_some_and(stays), "{} leaves nothing to W", exec.name());
    }
}

#[test]
fn what_recomputes_saves_the_same_and_its_forward_nothing() {
    let model = gpt(64, 16);
    for (kinds, again) in [(&FUSED[..], &FUSED_AGAIN[..]), (&SPLIT[..], &SPLIT_AGAIN[..])] {
        let (plain, again) = (compile(&model, 6, kinds, 1), compile(&model, 6, again, 1));
        let values = |set: &StageSet| set.values.clone();
        assert_eq!(values(&again), values(&plain), "what is saved does not depend on who saves it");
        for stage in 0..6 {
            let saved = |set: &StageSet, kind| -> Vec<u32> {
                let written = exec(set, stage, kind).operands.iter().filter(|one| one.access == Access::Write);
                let is_saved = |value: &&ValueId| {
                    let kind = set.values[value.index()].kind;
                    matches!(kind, ValueKind::SavedForInput | ValueKind::SavedForWeight)
                };
                written.map(|one| &one.value).filter(is_saved).map(|value| value.0).collect()
            };
            assert_eq!(saved(&again, TaskKind::Forward), Vec::<u32>::new());
            assert_eq!(saved(&again, TaskKind::Recompute), saved(&plain, TaskKind::Forward));
            // What only the stage's output needs is not computed again.
            let flops = |set: &StageSet, kind| exec(set, stage, kind).flops;
            assert_eq!(flops(&again, TaskKind::Forward), flops(&plain, TaskKind::Forward));
            assert!(flops(&again, TaskKind::Recompute) <= flops(&plain, TaskKind::Forward));
            let backward = exec(&plain, stage, kinds[1]);
            assert_eq!(exec(&again, stage, kinds[1]).body, backward.body, "the backward is the same");
        }
    }
}

#[test]
fn a_fused_backward_pass_has_the_nodes_of_its_halves() {
    let model = gpt(64, 16);
    let (split, fused) = (compile(&model, 6, &SPLIT, 1), compile(&model, 6, &FUSED, 1));
    for stage in 0..6 {
        let halves =
            [TaskKind::BackwardInput, TaskKind::BackwardWeight].map(|kind| products(exec(&split, stage, kind)));
        assert_eq!(products(exec(&fused, stage, TaskKind::Backward)), halves.iter().sum::<usize>());
        assert_eq!(exec(&fused, stage, TaskKind::Forward).flops, exec(&split, stage, TaskKind::Forward).flops);
    }
}

#[test]
fn a_block_saves_what_is_dear_and_repeats_what_is_cheap() {
    let (hidden, sequence, rows) = (64, 16, 2);
    let model = gpt(hidden, sequence);
    let unit = (rows * sequence * hidden * 4) as u64;
    let statistics = (rows * sequence * 2 * 4) as u64;
    let saved = |set: &StageSet, name: &str| {
        set.values.iter().find(|value| value.name == name).map_or(0, |value| value.bytes.0)
    };
    // The input, queries with keys and values, what they mix and none of their scores, the sum, and
    // what GELU takes: no output of a normalisation or of GELU.
    let set = compile(&model, 6, &FUSED, 1);
    assert_eq!(saved(&set, "saved_w.s2"), 10 * unit + 2 * statistics);
    assert!(set.values.iter().all(|value| value.kind != ValueKind::SavedForInput));
    let set = compile(&model, 6, &SPLIT, 1);
    assert_eq!(saved(&set, "saved_b.s2") + saved(&set, "saved_w.s2"), 10 * unit + 2 * statistics);
    assert_eq!(saved(&set, "saved_b.s2"), 3 * unit);
    // For `W`: gradients of queries, keys and values, of what they mix, of what GELU takes and of
    // what norms give. That of the output has arrived, and stays.
    assert_eq!(saved(&set, "deferred.s2"), 10 * unit);
}

/// The values of a kind that a task reads.
fn read<'a>(set: &'a StageSet, exec: &Exec, kind: ValueKind) -> Vec<&'a Value> {
    let reads = exec.operands.iter().filter(|operand| operand.access == Access::Read);
    reads.map(|operand| &set.values[operand.value.index()]).filter(|value| value.kind == kind).collect()
}

#[test]
fn gradients_that_arrived_stay_where_they_are_until_the_weight_half() {
    let set = compile(&gpt(64, 16), 6, &SPLIT, 1);
    for stage in 0..5 {
        let name = format!("gradient.s{stage}");
        let read = |kind| {
            let values = read(&set, exec(&set, stage, kind), ValueKind::Gradient);
            values.iter().map(|value| value.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(read(TaskKind::BackwardInput), [name.as_str()], "s{stage} takes what arrives");
        // The first stage hands on nothing: what it takes it stores.
        let again: &[&str] = if stage == 0 { &[] } else { &[&name] };
        assert_eq!(read(TaskKind::BackwardWeight), again, "s{stage} reads its gradient again, and copies nothing");
    }
}

#[test]
fn the_gradient_of_logits_is_made_again_from_logits_that_are_there() {
    let set = compile(&gpt(64, 16), 6, &SPLIT, 1);
    let has = |kind| {
        let Body::Graph(graph) = &exec(&set, 5, kind).body else { panic!("a graph") };
        graph.nodes.iter().any(|node| node.op == Op::CrossEntropyGrad)
    };
    assert!(has(TaskKind::BackwardInput) && has(TaskKind::BackwardWeight));
    let is_of_logits = |value: &Value| value.tensors.iter().any(|slot| slot.ty.shape == [2, 16, 16]);
    assert!(!is_of_logits(value(&set, "deferred.s5")), "no gradient of logits is kept");
    assert!(is_of_logits(value(&set, "saved_w.s5")), "logits are");
}

#[test]
fn the_weight_half_computes_no_more_products_than_before() {
    let set = compile(&gpt(64, 16), 6, &SPLIT, 1);
    let halves =
        |stage| [TaskKind::BackwardInput, TaskKind::BackwardWeight].map(|kind| products(exec(&set, stage, kind)));
    assert_eq!([1, 2, 3, 4].map(halves), [[4, 4]; 4], "blocks");
    assert_eq!(halves(5), [1, 1], "the head");
}

#[test]
fn parameters_keep_their_names_in_every_layout() {
    let model = gpt(8, 4);
    let names = |n_stages| -> Vec<String> {
        let set = compile(&model, n_stages, &FUSED, 1);
        let parameters = set.values.into_iter().filter(|value| value.kind == ValueKind::Parameters);
        parameters.flat_map(|value| value.tensors).map(|slot| slot.name).collect()
    };
    assert_eq!(names(1), names(5));
    assert_eq!(names(1)[..3], ["0.embedding.token", "0.embedding.position", "1.block.norm1_gain"]);
    assert_eq!(names(1).last().map(String::as_str), Some("5.head.unembedding"));
}

#[test]
fn tensors_lie_apart_on_cache_lines_and_have_names_of_their_own() {
    let set = compile(&gpt(12, 3), 2, &SPLIT, 1);
    for value in &set.values {
        let mut names: Vec<&str> = value.tensors.iter().map(|slot| slot.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), value.tensors.len(), "{}", value.name);
        let ends = value.tensors.iter().map(|slot| slot.offset + slot.ty.bytes());
        let starts = value.tensors.iter().skip(1).map(|slot| slot.offset).chain([value.bytes]);
        assert!(ends.zip(starts).all(|(end, next)| end.0 <= next.0 && next.0 % 64 == 0), "{}", value.name);
    }
    assert_eq!(value(&set, "data.tokens").bytes.0, 64);
}

#[test]
fn costs_are_operations() {
    let set = compile(&gpt(64, 16), 6, &SPLIT, 1);
    let costs = costs(&set, None);
    assert_eq!(costs.tasks[2][TaskKind::Forward.index()].0, exec(&set, 2, TaskKind::Forward).flops);
    assert_eq!(costs.tasks[2][TaskKind::Backward.index()].0, 0);
}

#[test]
fn stages_without_a_model_hand_on_activations_and_gradients() {
    let set = abstract_stages(&[Kinds::of(&SPLIT), Kinds::of(&FUSED)], &StageGraph::chain(2));
    assert_eq!(exec(&set, 0, TaskKind::BackwardWeight).operands.len(), 1);
    assert_eq!(exec(&set, 1, TaskKind::Forward).operands.len(), 2);
    assert_eq!(exec(&set, 1, TaskKind::Backward).operands.len(), 2);
    assert!(set.stages[1].exec_of(TaskKind::BackwardInput).is_none());
    assert_eq!(value(&set, "gradient.s0").stage.0, 1);
}

#[test]
fn every_executable_has_a_kernel_plan() {
    let model = gpt(16, 8);
    for kinds in [&FUSED[..], &SPLIT[..]] {
        for exec in compile(&model, 3, kinds, 2).execs {
            let Body::Graph(graph) = &exec.body else { panic!("a graph") };
            assert!(!pipe_ir::kernels::plan(graph).kernels.is_empty(), "{}", exec.name());
        }
    }
}
