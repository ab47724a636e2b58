//! The cases: every kind of kernel with a tensor of more than 2^32 elements.

use super::super::arena::Arena;
use super::super::updates::training;
use super::{Axis, Stretched, Tensor};
use crate::kernels::{MemberSum, Sources, StepNumbers};
use pipe_distributed::collective::sum_up;
use pipe_ir::graph::{Binary, DType, Op, TensorType, Unary};
use pipe_ir::ids::NodeId;
use pipe_ir::kernels::{Location, Storage};
use pipe_ir::muon::Matrices;
use pipe_ir::training::Optimizer;
use pipe_ir::units::Bytes;
use pipe_kernel_cases::Case;
use pipe_runtime::numbers::{decode, encode};
use pipe_runtime::{Piece, Precision, SquaredPart, UpdatedPart, run_squares, run_update};

type Make = fn(&mut Sources) -> Stretched;

/// All of them.
pub(super) fn all() -> Vec<Make> {
    vec![
        chain,
        halves,
        dropout,
        many_short_rows,
        repeated,
        transposed,
        moved,
        row_sums,
        column_sums,
        norms,
        norm_gradients,
        gains,
        softmax,
        softmax_gradients,
        cross_entropy,
        cross_entropy_gradients,
        gather,
        scatter_add,
        experts,
        routed,
        routed_gradients,
        logits,
        logits_bf16,
        logits_tf32,
        table_gradients,
        token_sums,
        many_products,
        attention,
        attention_bf16,
        attention_gradients,
        attention_gradients_bf16,
        long_context,
        long_context_bf16,
        adamw,
        lion,
        sgd,
        muon,
        squares,
        sums,
    ]
}

/// As many rows as make more than 2^32 elements, with 23 places.
fn rows(width: u64) -> Axis {
    Axis::new(23, (1 << 32) / width + 70_001, width)
}

fn of_graph(sources: &mut Sources, name: &str, axes: &[Axis], fill: impl FnOnce(&mut Case)) -> Stretched {
    of_scaled(sources, name, (axes, 1.0), fill)
}

fn of_scaled(
    sources: &mut Sources,
    name: &str,
    (axes, factor): (&[Axis], f64),
    fill: impl FnOnce(&mut Case),
) -> Stretched {
    let mut case = Case::new(name);
    fill(&mut case);
    Stretched::new(name, axes, &case, (sources, factor))
}

/// Element-wise functions of a whole tensor, four neighbours at a time.
fn chain(sources: &mut Sources) -> Stretched {
    of_graph(sources, "a chain", &[Axis::new(23, (1 << 32) + 1028, 1)], |case| {
        let (x, y) = (case.input(&[23]), case.input(&[23]));
        let z = case.unary(Unary::Tanh, x);
        let z = case.binary(Binary::Mul, z, y);
        case.store(z);
        case.accumulate(z);
    })
}

/// Eight neighbours at a time.
fn halves(sources: &mut Sources) -> Stretched {
    of_graph(sources, "a chain in bf16", &[Axis::new(23, (1 << 33) + 1032, 1)], |case| {
        let ty = TensorType::new(DType::BF16, &[23]);
        let x = case.operand(ty, (0..23).map(f64::from).collect());
        let x = case.converted(x, DType::F32);
        let y = case.unary(Unary::Neg, x);
        let y = case.converted(y, DType::BF16);
        case.store(y);
    })
}

fn dropout(sources: &mut Sources) -> Stretched {
    of_graph(sources, "dropout", &[rows(1000)], |case| {
        let (x, first, second) = (case.input(&[23, 1000]), case.input(&[23, 1]), case.input(&[1000]));
        let number = case.binary(Binary::Hash, first, second);
        let rate = case.constant(-0.25);
        let above = case.binary(Binary::Add, number, rate);
        let kept = case.binary(Binary::Mask, x, above);
        case.store(kept);
    })
}

/// So many rows that their number has 64 bits.
fn many_short_rows(sources: &mut Sources) -> Stretched {
    of_graph(sources, "short rows", &[Axis::new(23, (1 << 31) + 70_001, 3)], |case| {
        let (x, y) = (case.input(&[23, 3]), case.input(&[23, 1]));
        let z = case.binary(Binary::Sub, x, y);
        case.store(z);
    })
}

/// A bias, and two axes that cannot be one.
fn repeated(sources: &mut Sources) -> Stretched {
    of_graph(sources, "a bias", &[rows(40 * 36)], |case| {
        let (x, bias, own) = (case.input(&[23, 40, 36]), case.input(&[36]), case.input(&[40, 1]));
        let y = case.binary(Binary::Add, x, bias);
        let y = case.binary(Binary::Mul, y, own);
        case.store(y);
    })
}

/// Rows become columns.
fn transposed(sources: &mut Sources) -> Stretched {
    of_graph(sources, "a transpose", &[rows(70)], |case| {
        let x = case.input(&[23, 70]);
        let y = case.transpose(x, &[1, 0]);
        case.store(y);
    })
}

/// Heads come before positions; rows stay rows.
fn moved(sources: &mut Sources) -> Stretched {
    of_graph(sources, "heads", &[rows(5 * 6 * 32)], |case| {
        let x = case.input(&[23, 6, 5, 32]);
        let y = case.transpose(x, &[0, 2, 1, 3]);
        case.store(y);
    })
}

fn row_sums(sources: &mut Sources) -> Stretched {
    of_graph(sources, "sums of rows", &[rows(1500)], |case| {
        let x = case.input(&[23, 1500]);
        let sum = case.push(Op::Sum { axis: 1 }, &[x], &[23, 1]);
        case.store(sum);
    })
}

fn column_sums(sources: &mut Sources) -> Stretched {
    let axes = [Axis::new(23, 16_390, 262_148), Axis::new(11, 262_148, 1 << 40)];
    of_graph(sources, "sums of columns", &axes, |case| {
        let x = case.input(&[23, 11]);
        let sum = case.push(Op::Sum { axis: 0 }, &[x], &[1, 11]);
        case.accumulate(sum);
    })
}

fn norms(sources: &mut Sources) -> Stretched {
    of_graph(sources, "norms", &[rows(4096)], |case| {
        let (x, gain, bias) = (case.input(&[23, 4096]), case.input(&[4096]), case.input(&[4096]));
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[x], &[23, 2]);
        let y = case.push(Op::Normalize, &[x, statistics, gain, bias], &[23, 4096]);
        case.store(y);
    })
}

fn norm_gradients(sources: &mut Sources) -> Stretched {
    of_graph(sources, "gradients of norms", &[rows(1000)], |case| {
        let (x, statistics, gain) = (case.input(&[23, 1000]), case.input(&[23, 2]), case.input(&[1000]));
        let dy = case.input(&[23, 1000]);
        let dx = case.push(Op::NormalizeGradInput { rms: true }, &[x, statistics, gain, dy], &[23, 1000]);
        case.store(dx);
    })
}

/// Blocks that add up many rows; few columns of many.
fn gains(sources: &mut Sources) -> Stretched {
    let axes = [Axis::new(23, 16_390, 262_148), Axis::new(11, 262_148, 1 << 40)];
    of_graph(sources, "gradients of gains", &axes, |case| {
        let (x, statistics, dy) = (case.input(&[23, 11]), case.input(&[23, 2]), case.input(&[23, 11]));
        let dgain = case.push(Op::NormalizeGradGain, &[x, statistics, dy], &[11]);
        case.store(dgain);
    })
}

fn softmax(sources: &mut Sources) -> Stretched {
    of_graph(sources, "softmax", &[rows(1500)], |case| {
        let x = case.input(&[23, 1500]);
        let p = case.push(Op::Softmax { causal: false }, &[x], &[23, 1500]);
        case.store(p);
    })
}

fn softmax_gradients(sources: &mut Sources) -> Stretched {
    of_graph(sources, "gradients of softmax", &[rows(1500)], |case| {
        let (p, dy) = (case.input(&[23, 1500]), case.input(&[23, 1500]));
        let dx = case.push(Op::SoftmaxGrad, &[p, dy], &[23, 1500]);
        case.store(dx);
    })
}

/// Logits of 16,390 tokens; of those without a place none counts.
const TOKENS: u64 = 16_390;
const VOCABULARY: u64 = 262_148;

fn losses() -> ([Axis; 1], f64) {
    let axis =
        Axis { size: TOKENS, places: vec![0, 2047, 2049, 4096, 8191, 8192, 8193, 16_383, 16_388, 16_389, 12_000] };
    let factor = axis.places.len() as f64 / TOKENS as f64;
    ([axis], factor)
}

fn cross_entropy(sources: &mut Sources) -> Stretched {
    let (axes, factor) = losses();
    of_scaled(sources, "cross-entropy", (&axes, factor), |case| {
        let (x, targets, weights) = (case.input(&[11, VOCABULARY]), case.indices(&[11], VOCABULARY), case.input(&[11]));
        let loss = case.push(Op::CrossEntropy, &[x, targets, weights], &[]);
        case.store(loss);
    })
}

fn cross_entropy_gradients(sources: &mut Sources) -> Stretched {
    let (axes, factor) = losses();
    of_scaled(sources, "gradients of cross-entropy", (&axes, factor), |case| {
        let (x, targets, dloss) = (case.input(&[11, VOCABULARY]), case.indices(&[11], VOCABULARY), case.input(&[]));
        let dx = case.push(Op::CrossEntropyGrad, &[x, targets, dloss], &[11, VOCABULARY]);
        case.store(dx);
    })
}

/// A table of 262,148 rows, of 16,388 numbers each.
fn vocabulary() -> [Axis; 1] {
    [Axis::new(23, VOCABULARY, 16_388)]
}

fn gather(sources: &mut Sources) -> Stretched {
    of_graph(sources, "gather", &vocabulary(), |case| {
        let (table, tokens) = (case.input(&[23, 16_388]), case.indices(&[9], 23));
        let y = case.push(Op::Gather, &[table, tokens], &[9, 16_388]);
        case.store(y);
    })
}

fn scatter_add(sources: &mut Sources) -> Stretched {
    of_graph(sources, "scatter", &vocabulary(), |case| {
        let (tokens, dy) = (case.indices(&[9], 23), case.input(&[9, 16_388]));
        let table = case.push(Op::ScatterAdd, &[tokens, dy], &[23, 16_388]);
        case.store(table);
    })
}

/// Eight of 128 experts for each token.
fn experts(sources: &mut Sources) -> Stretched {
    of_graph(sources, "experts", &[rows(128)], |case| {
        let (x, dy) = (case.input(&[23, 128]), case.input(&[23, 8]));
        let chosen = case.graph.push(Op::TopK, vec![x], TensorType::new(DType::I32, &[23, 8]));
        let own = case.push(Op::TakeAlong, &[x, chosen], &[23, 8]);
        let dx = case.push(Op::AddAlong, &[chosen, dy], &[23, 128]);
        [chosen, own, dx].into_iter().for_each(|node| case.store(node));
    })
}

/// Rows of which all but a few take the first of five matrices.
fn routed(sources: &mut Sources) -> Stretched {
    of_graph(sources, "routed products", &[rows(4100)], |case| {
        let (x, matrices, routes) = (case.input(&[23, 4100]), case.input(&[5, 4100, 20]), routes(case));
        let y = case.push(Op::RoutedMatMul { transpose: false }, &[x, matrices, routes], &[23, 20]);
        case.store(y);
    })
}

fn routed_gradients(sources: &mut Sources) -> Stretched {
    let mut made = of_graph(sources, "gradients of routed products", &[rows(4100)], |case| {
        let (x, dy, routes) = (case.input(&[23, 4100]), case.input(&[23, 20]), routes(case));
        let dw = case.push(Op::RoutedMatMulGrad, &[x, dy, routes], &[5, 4100, 20]);
        case.store(dw);
    });
    made.from = vec![1];
    made
}

fn routes(case: &mut Case) -> NodeId {
    case.operand(TensorType::new(DType::I32, &[23]), (0..23).map(|row| f64::from(1 + row % 4)).collect())
}

fn product(sources: &mut Sources, name: &str, precision: Precision, is_half: bool) -> Stretched {
    sources.precision = precision;
    let axes = [Axis::new(17, TOKENS, VOCABULARY), Axis::new(11, VOCABULARY, 1 << 40)];
    let made = of_graph(sources, name, &axes, |case| {
        let (x, table) = (case.input(&[17, 20]), case.input(&[11, 20]));
        let logits = case.matmul(x, table, false, true, &[17, 11]);
        if is_half {
            *case = case.clone().in_halves();
        }
        case.store(logits);
    });
    sources.precision = Precision::Fp32;
    made
}

fn logits(sources: &mut Sources) -> Stretched {
    product(sources, "logits", Precision::Fp32, false)
}

fn logits_bf16(sources: &mut Sources) -> Stretched {
    product(sources, "logits in bf16", Precision::Bf16, true)
}

fn logits_tf32(sources: &mut Sources) -> Stretched {
    product(sources, "logits in tf32", Precision::Tf32, false)
}

/// The gradient of a table whose rows are long.
fn table_gradients(sources: &mut Sources) -> Stretched {
    let axes = [Axis::new(17, VOCABULARY, 16_388), Axis::new(11, 16_388, 1 << 40)];
    of_graph(sources, "gradients of a table", &axes, |case| {
        let (dlogits, x) = (case.input(&[20, 17]), case.input(&[20, 11]));
        let dtable = case.matmul(dlogits, x, true, false, &[17, 11]);
        case.accumulate(dtable);
    })
}

/// The same from gradients of many logits, which are added up over all tokens: blocks walk along these step by step,
/// and each step is short.
fn token_sums(sources: &mut Sources) -> Stretched {
    let axes = [Axis::new(17, TOKENS, VOCABULARY), Axis { size: VOCABULARY, places: vec![0, 100_000, VOCABULARY - 1] }];
    let mut made = of_graph(sources, "sums over tokens", &axes, |case| {
        let (dlogits, x) = (case.input(&[17, 3]), case.input(&[17, 20]));
        let dtable = case.matmul(dlogits, x, true, false, &[3, 20]);
        case.store(dtable);
    });
    made.is_walked = true;
    made
}

/// Of a batch.
fn many_products(sources: &mut Sources) -> Stretched {
    of_graph(sources, "a batch of products", &[rows(70 * 66)], |case| {
        let (a, b) = (case.input(&[23, 70, 20]), case.input(&[23, 20, 66]));
        let c = case.matmul(a, b, false, false, &[23, 70, 66]);
        case.store(c);
    })
}

/// Heads by the million.
fn heads(sources: &mut Sources, name: &str, (is_half, has_gradients): (bool, bool)) -> Stretched {
    of_graph(sources, name, &[rows(70 * 16)], |case| {
        let factors: Vec<_> = (0..if has_gradients { 4 } else { 3 }).map(|_| case.input(&[23, 70, 16])).collect();
        if is_half {
            *case = case.clone().in_halves();
        }
        let y = if has_gradients {
            case.push(Op::AttentionGrad { causal: true, window: None }, &factors, &[23, 210, 16])
        } else {
            case.push(Op::Attention { causal: true, window: None }, &factors, &[23, 70, 16])
        };
        let y = if is_half { case.converted(y, DType::BF16) } else { y };
        case.store(y);
    })
}

fn attention(sources: &mut Sources) -> Stretched {
    heads(sources, "attention", (false, false))
}

fn attention_bf16(sources: &mut Sources) -> Stretched {
    heads(sources, "attention in bf16", (true, false))
}

fn attention_gradients(sources: &mut Sources) -> Stretched {
    heads(sources, "gradients of attention", (false, true))
}

fn attention_gradients_bf16(sources: &mut Sources) -> Stretched {
    heads(sources, "gradients of attention in bf16", (true, true))
}

/// Windows at the end of a row of 2^26 positions, of 5 heads.
fn windows(sources: &mut Sources, name: &str, is_half: bool) -> Stretched {
    const WINDOW: u64 = 50;
    let axes = [Axis::end(190, (1 << 26) + 1000)];
    let mut made = of_graph(sources, name, &axes, |case| {
        let factors: Vec<_> = (0..3).map(|_| case.input(&[5, 190, 16])).collect();
        if is_half {
            *case = case.clone().in_halves();
        }
        let y = case.push(Op::Attention { causal: true, window: Some(WINDOW) }, &factors, &[5, 190, 16]);
        let y = if is_half { case.converted(y, DType::BF16) } else { y };
        case.store(y);
    });
    made.from = vec![0, WINDOW];
    made
}

fn long_context(sources: &mut Sources) -> Stretched {
    windows(sources, "a long context", false)
}

fn long_context_bf16(sources: &mut Sources) -> Stretched {
    windows(sources, "a long context in bf16", true)
}

/// More parameters than 2^32.
fn parameters() -> Axis {
    Axis::new(23, (1 << 32) + 4_001, 1)
}

/// Results are those of the CPU.
fn update(sources: &mut Sources, name: &str) -> Stretched {
    let axis = parameters();
    let settings = Optimizer::settings(name).expect("an optimizer").iter().map(|setting| setting.default);
    let optimizer = Optimizer::new(name, &settings.collect::<Vec<_>>()).expect("its settings");
    let n_state = optimizer.state_per_parameter();
    let training = training(optimizer);
    let part = |count: u64| {
        let bytes = 0..(count * 4) as usize;
        let pieces = vec![Piece { bytes: bytes.clone(), decays: true, second: bytes.len(), matrices: None }];
        UpdatedPart { from: 0, bytes, dtype: DType::F32, pieces }
    };
    let mut shapes = vec![vec![23], vec![23]];
    shapes.extend((n_state > 0).then(|| vec![n_state, 23]));
    let number = |nth: usize| 0.25 + (nth % 7) as f64 / 8.0;
    let mut tensors: Vec<Tensor> = shapes
        .into_iter()
        .map(|shape| {
            let before = (0..shape.iter().product::<u64>() as usize).map(number).collect();
            Tensor { dtype: DType::F32, shape, before, after: None }
        })
        .collect();
    let arena = Arena::new(vec![Bytes(23 * 4), Bytes(23 * 4), Bytes(n_state * 23 * 4), Bytes(8)]);
    for (position, tensor) in tensors.iter().enumerate() {
        arena.region(position).bytes_mut().copy_from_slice(&encode(DType::F32, tensor.before.iter().copied()));
    }
    let operands = [0, 1, 2, 3].map(|position| arena.region(position));
    run_update(&part(23), (&training, None), 1, operands).expect("an update");
    for (position, tensor) in tensors.iter_mut().enumerate().filter(|(position, _)| *position != 1) {
        tensor.after = Some(decode(DType::F32, arena.region(position).bytes()));
    }
    let launches = sources.optimizer(&optimizer, &part(axis.size), (false, None));
    let step = StepNumbers::new(&training, 1).numbers().iter().flat_map(|number| number.to_ne_bytes()).collect();
    made_of(name, axis, (tensors, launches, step))
}

fn made_of(
    name: &str,
    axis: Axis,
    (tensors, launches, step): (Vec<Tensor>, Vec<crate::launch::Launch>, Vec<u8>),
) -> Stretched {
    let (name, axes) = (name.to_owned(), vec![axis]);
    Stretched { name, axes, tensors, launches, scratch: 0, step, tolerance: 1e-6, from: Vec::new(), is_walked: false }
}

fn adamw(sources: &mut Sources) -> Stretched {
    update(sources, "adamw")
}

fn lion(sources: &mut Sources) -> Stretched {
    update(sources, "lion")
}

fn sgd(sources: &mut Sources) -> Stretched {
    update(sources, "sgd")
}

/// Muon's kernels before and after the orthogonalization, whose result is another operand here.
fn muon(sources: &mut Sources) -> Stretched {
    let axis = parameters();
    let optimizer = Optimizer::Muon { momentum: 0.75, weight_decay: 0.5, beta1: 0.9, beta2: 0.95, epsilon: 1e-8 };
    let training = training(optimizer);
    let matrices = Matrices { dtype: DType::F32, count: axis.size, rows: 1, columns: 1 };
    let bytes = 0..(axis.size * 4) as usize;
    let piece = Piece { bytes: bytes.clone(), decays: true, second: 0, matrices: Some(matrices) };
    let part = UpdatedPart { bytes, from: 0, dtype: DType::F32, pieces: vec![piece.clone()] };
    let places = [3, 4].map(|operand| Location { place: Storage::Operand(operand), offset: Bytes::ZERO });
    let launches = sources.matrices(&optimizer, (&part, &piece, matrices), (false, None), places).to_vec();
    let step = StepNumbers::new(&training, 1).numbers();
    let [p, g, m, orthogonal] =
        [3, 5, 7, 11].map(|factor| (0..23).map(|nth| f64::from(nth * factor % 16) / 8.0).collect());
    let (p, g, m, orthogonal): (Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>) = (p, g, m, orthogonal);
    let towards = |m: &[f64]| -> Vec<f64> { m.iter().zip(&g).map(|(m, g)| 0.75 * m + 0.25 * g).collect() };
    let momentum = towards(&m);
    let direction = towards(&momentum);
    let moved = p.iter().zip(&orthogonal).map(|(p, x)| step[1] * p - step[0] * matrices.factor() * x).collect();
    let made = [
        (p.clone(), Some(moved)),
        (g.clone(), None),
        (m, Some(momentum)),
        (vec![0.0; 23], Some(direction)),
        (orthogonal, None),
    ];
    let tensors = made.map(|(before, after)| Tensor { dtype: DType::F32, shape: vec![23], before, after });
    let step = step.iter().flat_map(|number| number.to_ne_bytes()).collect();
    made_of("muon", axis, (tensors.into(), launches, step))
}

/// The sum of the squares of all gradients.
fn squares(sources: &mut Sources) -> Stretched {
    let axis = parameters();
    let part =
        |count: u64| SquaredPart { dtype: DType::F32, bytes: std::iter::once(0..(count * 4) as usize).collect() };
    let before: Vec<f64> = (0..23).map(f64::from).collect();
    let n_numbers = pipe_ir::training::NORM_NUMBERS;
    let arena = Arena::new(vec![Bytes(23 * 4), Bytes(8 * n_numbers)]);
    arena.region(0).bytes_mut().copy_from_slice(&encode(DType::F32, before.iter().copied()));
    arena.region(1).bytes_mut().fill(0);
    run_squares(&part(23), arena.region(0), arena.region(1));
    let sum = arena.region(1).numbers::<f64>()[0];
    let tensors = vec![
        Tensor { dtype: DType::F32, shape: vec![23], before, after: None },
        Tensor { dtype: DType::F64, shape: vec![1], before: vec![0.0], after: Some(vec![sum]) },
    ];
    let launches = sources.squares(&part(axis.size));
    made_of("squares", axis, (tensors, launches, vec![]))
}

/// What replicas add up.
fn sums(sources: &mut Sources) -> Stretched {
    let axis = parameters();
    let parts: Vec<Vec<f64>> = (0..3).map(|member| (0..23).map(|nth| f64::from(nth * 3 + member)).collect()).collect();
    let arena = Arena::new(vec![Bytes(23 * 4); 4]);
    for (member, numbers) in parts.iter().enumerate() {
        arena.region(member).bytes_mut().copy_from_slice(&encode(DType::F32, numbers.iter().copied()));
    }
    sum_up(DType::F32, (0..3).map(|member| arena.region(member)), [arena.region(3)].into_iter());
    let sum = decode(DType::F32, arena.region(3).bytes());
    let member = |before| Tensor { dtype: DType::F32, shape: vec![23], before, after: Some(sum.clone()) };
    let sum_of_all = MemberSum { dtype: DType::F32, members: 3, to_one: false, bytes: (axis.size * 4) as usize };
    let launches = vec![sources.member_sum(sum_of_all)];
    made_of("sums of replicas", axis, (parts.into_iter().map(member).collect(), launches, vec![]))
}
