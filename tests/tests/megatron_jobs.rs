//! Commands that start Megatron-LM are read as pipelines: with its stages, its schedule and its division, or refused
//! where Megatron refuses them.

use pipe_compiler::megatron::arguments::Arguments;
use pipe_compiler::megatron::job::Job;
use pipe_compiler::{Compilation, Request};
use pipe_model::transformer::accounts;
use pipe_tests::cases::{compile_text, read, root};

const CONFIG: &str = "llama3_70b.json";
/// Eight pipelines of four stages, in each of which eight devices divide the layers.
const BASE: &str = "torchrun --nnodes 32 --nproc-per-node=8 pretrain_gpt.py --tensor-model-parallel-size 8 \
                    --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 128 --seq-length 4096 \
                    --num-layers 80 --bf16 --lr 3e-4 ";

fn source(command: &str) -> Result<String, String> {
    let config = read(&root().join("examples").join(CONFIG));
    command.parse::<Job>()?.source(CONFIG, &config)
}

fn compiled(command: &str) -> Compilation {
    let text = source(command).unwrap_or_else(|wrong| panic!("{command}: {wrong}"));
    let (compilation, _) = compile_text("job.pipe", &text, &root().join("examples"), &Request::default());
    assert!(compilation.report.ok, "{command}: {:?}\n{text}", compilation.diagnostics);
    compilation
}

/// Layers of each stage, devices, microbatches, and the schedule's name.
fn shape(command: &str) -> (Vec<u64>, usize, u32, String) {
    let compilation = compiled(command);
    let analysis = compilation.analysis.as_ref().expect("an accepted job");
    let schedule = &analysis.schedule;
    let transformer = analysis.pipeline.as_ref().and_then(|own| own.transformer.as_ref()).expect("a transformer");
    let stages = accounts(transformer, &schedule.placement, schedule.span).expect("stages");
    let layers = stages.iter().map(|stage| stage.layers.end - stage.layers.start).collect();
    (layers, schedule.n_devices(), schedule.n_microbatches, schedule.name.clone())
}

/// `get_num_layers_to_build` and `validate_args` of Megatron-LM, d98e8a6, worked by hand.
#[test]
fn stages_are_those_of_megatron() {
    let cases: [(&str, Vec<u64>, &str); 7] = [
        ("", vec![20; 4], "1f1b"),
        ("--num-virtual-stages-per-pipeline-rank 5", vec![4; 20], "interleaved_1f1b"),
        ("--num-layers-per-virtual-pipeline-stage 10", vec![10; 8], "interleaved_1f1b"),
        ("--pipeline-model-parallel-layout Et*18|t*21|t*21|t*20L", vec![18, 21, 21, 20], "1f1b"),
        ("--decoder-first-pipeline-num-layers 18 --decoder-last-pipeline-num-layers 20", vec![18, 21, 21, 20], "1f1b"),
        (
            "--decoder-last-pipeline-num-layers 14 --num-virtual-stages-per-pipeline-rank 2",
            vec![11, 11, 11, 7, 11, 11, 11, 7],
            "interleaved_1f1b",
        ),
        ("--num-virtual-stages-per-pipeline-rank 1", vec![20; 4], "1f1b"),
    ];
    for (more, layers, schedule) in cases {
        assert_eq!(shape(&format!("{BASE}{more}")), (layers, 4, 16, schedule.to_owned()), "{more}");
    }
    // 78 layers with the embedding and the head make 80.
    let text =
        read(&root().join("examples").join(CONFIG)).replace("\"num_hidden_layers\": 80", "\"num_hidden_layers\": 78");
    let accounted = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split";
    let command = format!("{BASE}{accounted}").replace("--num-layers 80", "--num-layers 78");
    let job = command.parse::<Job>().expect("options");
    assert!(job.source(CONFIG, &text).expect("a source").contains("layers = [19, 20, 20, 19]"));
}

#[test]
fn what_megatron_refuses_is_refused() {
    let cases = [
        ("--num-virtual-stages-per-pipeline-rank 2 --num-layers-per-virtual-pipeline-stage 5", "takes only one of"),
        (
            "--num-virtual-stages-per-pipeline-rank 3",
            "a rank has 20 layers, which 3 virtual stages do not divide evenly",
        ),
        ("--pipeline-model-parallel-size 3", "256 GPUs are not a multiple of 24"),
        ("--global-batch-size 100", "`--global-batch-size 100` is not a multiple of 8"),
        ("--num-layers 81", "`--num-layers 81`, but llama3_70b.json has 80 layers"),
        ("--pipeline-model-parallel-layout Et*20|t*20|t*20|t*19L", "the layout has 79 layers, and the model 80"),
        ("--pipeline-model-parallel-layout Et*40|t*40L", "2 stages, no multiple of 4 pipeline ranks"),
        (
            "--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 3",
            "groups have 3 microbatches, and Megatron wants 4 or more",
        ),
        (
            "--num-virtual-stages-per-pipeline-rank 2 --global-batch-size 80 \
             --microbatch-group-size-per-virtual-pipeline-stage 8",
            "the last group has 2 of 10 microbatches",
        ),
        (
            "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication",
            "interleaves chunks on 3 ranks or more, and there are 2",
        ),
        ("--context-parallel-size 2", "no context parallelism"),
        ("--recompute-granularity full", "wants a `--recompute-method`"),
        ("--recompute-granularity selective --recompute-method uniform", "takes no `--recompute-method`"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 4", "are not modelled"),
        ("--sequence-paralel", "did you mean `--sequence-parallel`?"),
        ("--use-distributed-optimiser", "did you mean `--use-distributed-optimizer`?"),
        ("--pipeline_model_paralel_size 4", "did you mean `--pipeline-model-parallel-size`?"),
        ("--seq-length $SEQ", "variables of the shell are not known here"),
        ("--micro-batch-size none", "expected a number from 1 on for `--micro-batch-size`, found `none`"),
    ];
    for (more, words) in cases {
        let wrong = source(&format!("{BASE}{more}")).expect_err(more);
        assert!(wrong.contains(words), "{more}: {wrong}");
    }
    assert!(source("--pipeline-model-parallel-size 4").expect_err("no launcher").contains("how many GPUs"));
    assert!(source("--lr 0.1").expect_err("nothing of a pipeline").contains("none of these options"));
    assert!(source("--seq-length '4").expect_err("a quote").contains("quote is not closed"));
}

/// What `--emit megatron-args` writes is read back as the same schedule in the same bytes.
#[test]
fn written_options_come_back() {
    let launchers = [
        ("", "WORLD_SIZE=256"),
        ("--num-virtual-stages-per-pipeline-rank 2 --sequence-parallel", "WORLD_SIZE=256"),
        (
            "--num-virtual-stages-per-pipeline-rank 4 --use-distributed-optimizer",
            "torchrun --nnodes=32 --nproc_per_node=8",
        ),
        (
            "--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 8 \
             --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "WORLD_SIZE=256",
        ),
        ("--recompute-activations", "WORLD_SIZE=256"),
    ];
    for (more, launcher) in launchers {
        let first = compiled(&format!("{BASE}{more}"));
        let analysis = first.analysis.as_ref().expect("an accepted job");
        let written = Arguments::of(analysis).expect("Megatron runs it").to_string();
        let again = compiled(&format!("{launcher} {written}"));
        let second = again.analysis.as_ref().expect("an accepted job");
        assert_eq!(analysis.schedule.orders, second.schedule.orders, "{more}");
        assert_eq!(analysis.peaks, second.peaks, "{more}");
        let settings = |own: &pipe_compiler::analyze::Analysis| {
            own.pipeline.as_ref().and_then(|own| own.transformer.as_ref()).map(|own| own.settings.clone())
        };
        assert_eq!(settings(analysis), settings(second), "{more}");
    }
}
