; Colours of words. The later pattern counts where several match.

(name) @variable
(comment) @comment
(string) @string
(standard_path) @string.special.path
(number) @number
(kind) @type.builtin
(swap_kind) @type.builtin
(step_task_kind) @type.builtin
(carried) @keyword
(activation_name) @type.builtin
(cost_name) @type.builtin
(dtype) @type.builtin
(number_type) @type.builtin
(version) @constant.builtin
(offloaded) @constant.builtin
(decay_shape) @constant.builtin
"matrices" @constant.builtin
"shuffled" @constant.builtin
(reorder) @keyword

(schedule_name) @type
(schedule_name (name) @type)
(schedule . "schedule" (schedule_name (name) @type.definition))
(layer . "layer" (name) @type.definition)
(model . "model" (name) @type.definition)
(pipeline . "pipeline" (name) @type.definition)
(parameter (name) @variable.parameter)
(file_parameter (name) @constant)
(argument (name) @variable.parameter "=")
(call (name) @function)
(use (name) @function)
(tie (name) @variable)

["activation" "all" "at" "auto" "behind" "block" "bubble" "checkpoint" "clip_norm" "cost" "cut" "data" "decay"
 "device" "devices" "every" "fill" "from" "frozen" "host" "init" "input" "lane" "layer" "let" "loss" "memory"
 "microbatches" "minimum" "model" "none" "normal" "numbers" "of" "offload" "on" "ones" "optimizer" "order" "output"
 "over" "param" "part" "parts" "peak" "phase" "pipeline" "place" "precision" "reads" "recompute" "require" "schedule"
 "seed" "slices" "slots" "speed" "split" "stages" "steps" "swap" "synthetic" "tensor" "to" "tokenizer" "train"
 "trained" "validation" "warmup" "weight" "weight_decay" "weights" "with" "zero" "zeros"] @keyword
"import" @keyword.import
["if" "then" "else"] @keyword.conditional
["for" "in" "repeat"] @keyword.repeat
["and" "or" "not"] @keyword.operator
["+" "-" "*" "/" "%" "=" "==" "!=" "<=" ">=" "<" ">" "&" ".."] @operator
["{" "}" "(" ")" "[" "]"] @punctuation.bracket
["," ":" "."] @punctuation.delimiter
