"""What the library may say about a model folder, its report and the Hub, and the same in Chinese."""

OF_FOLDERS: tuple[tuple[str, str], ...] = (
    # Its files
    (
        "{folder} is not a folder; name a model folder such as {example}.",
        "{folder} 不是文件夹；请给出一个模型文件夹，例如 {example}。",
    ),
    (
        "{folder} lacks {files}; restore the files or train the model again.",
        "{folder} 缺少 {files}；请恢复文件或重新训练模型。",
    ),
    ("{path} does not exist; a model folder needs it.", "{path} 不存在，而模型文件夹需要它。"),
    ("{path} does not exist; make it with: {command}", "{path} 不存在，用此命令生成：{command}"),
    ("{path} cannot be read ({detail}); check the {what}.", "无法读取 {path}（{detail}）；请检查。"),
    (
        "{path} is not readable JSON ({detail}); restore it from its source.",
        "{path} 不是可读的 JSON（{detail}）；请从来源恢复。",
    ),
    ("{path} holds a {kind}, not a JSON object; restore it.", "{path} 的内容是 {kind}，而不是 JSON 对象；请恢复。"),
    (
        "{path} has unknown keys {keys}; remove them (known: {known}).",
        "{path} 含有未知的键 {keys}；请删除（已知：{known}）。",
    ),
    ("{path} lacks the keys {keys}; add them.", "{path} 缺少键 {keys}；请补上。"),
    ("{name} must be {wanted}, not {value}; correct it.", "{name} 应为 {wanted}，而不是 {value}；请更正。"),
    ("a whole number", "整数"),
    ("a number", "数"),
    ("true or false", "true 或 false"),
    ("text", "文本"),
    ("a list", "列表"),
    ("an object", "对象"),
    (
        "{name} is {value}; choose a value from 0 up to, not including, 1.",
        "{name} 为 {value}；请选择不小于 0 且小于 1 的值。",
    ),
    (
        "{name} is {value}, but a decoder-only model has no encoder; set it to 0.",
        "{name} 为 {value}，但 decoder-only 模型没有编码器；请设为 0。",
    ),
    (
        "{name} is {value}, but sinusoidal positions pair a sine with a cosine; make it even.",
        "{name} 为 {value}，但正弦位置编码由正弦与余弦成对组成；请用偶数。",
    ),
    (
        "{name} is {value}, which does not divide {other}; choose a divisor.",
        "{name} 为 {value}，不能整除 {other}；请选择它的约数。",
    ),
    (
        "{name} over {other} gives heads of width {width}; "
        "make it a multiple of 8, as the fused attention kernels need.",
        "{name} 除以 {other} 得到宽 {width} 的头；请使其为 8 的倍数，融合注意力需要如此。",
    ),
    (
        "{name} must name the tokens of user and assistant for a chat model; add them.",
        "{name} 必须为聊天模型给出 user 和 assistant 的词元；请补上。",
    ),
    (
        "{path}: {name} should have shape {wanted} as {config} says, but the file has {found}; "
        "the two files are of different models.",
        "{path}：按 {config}，{name} 的形状应为 {wanted}，而文件中是 {found}；两个文件属于不同的模型。",
    ),
    (
        "{path} holds {n} numbers, but {config} describes a model of {wanted}; the two files are of different models.",
        "{path} 含 {n} 个数，而 {config} 描述的模型有 {wanted} 个；两个文件属于不同的模型。",
    ),
    (
        "{name} is stored as {kind}, not as {kinds}; restore the file.",
        "{name} 存为 {kind}，而不是 {kinds}；请恢复文件。",
    ),
    (
        "{path} has {n} tokens, but {config} says vocab_size {wanted}; use the tokenizer the model was trained with.",
        "{path} 有 {n} 个词元，而 {config} 的 vocab_size 为 {wanted}；请用训练模型时的分词器。",
    ),
    (
        "{name} is {value}, which is no special token of {file}; use the file the model was trained with.",
        "{name} 为 {value}，不是 {file} 的特殊词元；请用训练模型时的文件。",
    ),
    (
        "{name} is {value}, above the model's max_length of {high}; lower it.",
        "{name} 为 {value}，超过模型的 max_length {high}；请调低。",
    ),
    (
        "{path} is not a whole safetensors file ({detail}); restore it from its source.",
        "{path} 不是完整的 safetensors 文件（{detail}）；请从来源恢复。",
    ),
    (
        "{path} {faults}; it belongs to a model of another shape.",
        "{path} 与配置不符（{faults}）；它属于另一种形状的模型。",
    ),
    (
        "{path} is not a tokenizer file ({detail}); restore it from its source.",
        "{path} 不是分词器文件（{detail}）；请从来源恢复。",
    ),
    ("{path} is larger than {n} bytes; it is not a tokenizer of ours.", "{path} 超过 {n} 字节，不是本项目的分词器。"),
    (
        "{path} lacks the special tokens {tokens}; train it with this project.",
        "{path} 缺少特殊词元 {tokens}；请用本项目训练。",
    ),
    (
        "{path} does not give every text back unchanged; train it with this project.",
        "{path} 不能原样还原每段文本；请用本项目训练。",
    ),
    (
        "{path} has no token with the id {id}; restore it from its source.",
        "{path} 没有编号为 {id} 的词元；请从来源恢复。",
    ),
    ("{path}: token {token} is not byte-level; train it again.", "{path}：词元 {token} 不是字节级的；请重新训练。"),
    (
        "{path} was made {source} another {file} than the one beside it; make it again with: {command}",
        "{path} 由另一个 {file} 生成，而不是旁边的这个；用此命令重新生成：{command}",
    ),
    (
        "{path} takes weights from {file} at {offset}, no tensor of {weights}; make it again with: {command}",
        "{path} 从 {file} 的 {offset} 处取权重，那里不是 {weights} 的张量；用此命令重新生成：{command}",
    ),
    (
        "{path} is larger than {n} bytes, so it holds weights; make it again with: {command}",
        "{path} 超过 {n} 字节，说明其中含有权重；用此命令重新生成：{command}",
    ),
    (
        "{path} is not a whole graph of ours ({detail}); make it again with: {command}",
        "{path} 不是本项目的完整计算图（{detail}）；用此命令重新生成：{command}",
    ),
    (
        "ONNX Runtime cannot load {path} ({detail}); make it again with: {command}",
        "ONNX Runtime 无法加载 {path}（{detail}）；用此命令重新生成：{command}",
    ),
    (
        "{path} is not a TorchScript archive ({detail}); export it again.",
        "{path} 不是 TorchScript 文件（{detail}）；请重新导出。",
    ),
    (
        "{path} holds other weights than the folder ({name} differs); export it again.",
        "{path} 的权重与文件夹不同（{name} 不一致）；请重新导出。",
    ),
    # The parity report
    ("{path} is larger than {n} bytes; it is no report of ours.", "{path} 超过 {n} 字节，不是本项目的报告。"),
    (
        "{path} is not a parity report ({detail}); make it again: {command}.",
        "{path} 不是一致性报告（{detail}）；重新生成：{command}",
    ),
    ("{path} was edited after it was written; make it again: {command}.", "{path} 写成后被改动过；重新生成：{command}"),
    ("Parity failed in {n} of {total} cases: {cases}.", "{total} 项比较中有 {n} 项不一致：{cases}"),
    (
        "{path} does not cover {file}; make the report again: {command}.",
        "{path} 未包含 {file}；重新生成报告：{command}",
    ),
    (
        "{path} is not the file that {report} vouches for; restore it, or make the report again: {command}.",
        "{path} 不是 {report} 所担保的文件；请恢复它，或重新生成报告：{command}",
    ),
    # A model from the Hub
    (
        "{name} is neither a folder here nor a name of the form USER/NAME; check the name.",
        "{name} 既不是这里的文件夹，也不是 USER/NAME 形式的名称；请检查。",
    ),
    (
        "There is no folder {name} here, and the Hub has no model of that name that this token may see; "
        "check the name.",
        "这里没有文件夹 {name}，Hub 上也没有此令牌可见的同名模型；请检查名称。",
    ),
    (
        "{name} has no {report}, so nothing vouches for its files; load it with {option} if you trust its author.",
        "{name} 没有 {report}，没有什么为它的文件担保；若信任作者，请用 {option} 加载。",
    ),
    (
        "{name} has no {file}: it is no model of this project; check the name.",
        "{name} 没有 {file}，不是本项目的模型；请检查名称。",
    ),
    (
        "{name} has no {file}, although its {report} names it; tell its author.",
        "{name} 没有 {file}，而它的 {report} 列出了它；请告知作者。",
    ),
    (
        "{file} was made from another {source} than its own; tell its author.",
        "{file} 由另一个 {source} 生成，与它不配；请告知作者。",
    ),
    ("{report} does not cover {file}; tell its author.", "{report} 未包含 {file}；请告知作者。"),
    (
        "{file} is not the file that {report} vouches for; the download was damaged or the repo was tampered with. "
        "The bad copy is removed: try again.",
        "{file} 不是 {report} 所担保的文件：下载已损坏或仓库被篡改。坏的副本已删除，请再试一次。",
    ),
    (
        "There is no Hugging Face token here; run hf auth login, or set HF_TOKEN.",
        "这里没有 Hugging Face 令牌；请运行 hf auth login 或设置 HF_TOKEN。",
    ),
    (
        "The client is offline (HF_HUB_OFFLINE), so {name} cannot be reached; unset the variable.",
        "客户端处于离线状态（HF_HUB_OFFLINE），无法取得 {name}；请取消该变量。",
    ),
    (
        "{name} is not in the cache, and the client is offline; load it once with a network.",
        "{name} 不在缓存中，且客户端离线；请先联网加载一次。",
    ),
    (
        "The Hub at {address} cannot be reached ({detail}); check the network and try again.",
        "无法连接 Hub（{address}，{detail}）；请检查网络后再试。",
    ),
    (
        "The answer of {address} about {name} makes no sense; try again later.",
        "{address} 关于 {name} 的应答无法理解；请稍后再试。",
    ),
    ("{name} is no name for a Hub repo; write USER/NAME.", "{name} 不是 Hub 仓库的名称；请写成 USER/NAME。"),
    ("The Hub refuses {name}: {detail}", "Hub 拒绝了 {name}：{detail}"),
    (
        "The Hub finds the request for {name} malformed ({detail}); correct it.",
        "Hub 认为对 {name} 的请求有误（{detail}）；请更正。",
    ),
    (
        "The Hub does not accept the token (401) for {name}; make a new one at {address} and run: {command}.",
        "Hub 不接受用于 {name} 的令牌（401）；请在 {address} 新建一个并运行：{command}",
    ),
    (
        "{name} needs a paid plan or billing on the Hub (402); see {address}.",
        "{name} 需要 Hub 的付费方案（402）；见 {address}",
    ),
    (
        "The token has no right to do this with {name} (403); use one with write access to that namespace.",
        "令牌无权对 {name} 这样做（403）；请用对该命名空间有写权限的令牌。",
    ),
    (
        "The Hub has no {name}, or it is private and the token may not see it (404); check the name.",
        "Hub 上没有 {name}，或它是私有的而令牌无权查看（404）；请检查名称。",
    ),
    ("The name {name} is taken on the Hub (409); choose another.", "Hub 上已有 {name}（409）；请换一个名称。"),
    (
        "{name} was changed by somebody else meanwhile (412); look at it, then run the command again.",
        "{name} 期间被他人改动（412）；请查看后再运行。",
    ),
    (
        "A file for {name} is larger than the Hub takes (413); make it smaller.",
        "{name} 的一个文件超过 Hub 的上限（413）；请缩小。",
    ),
    (
        "The Hub asks for fewer requests (429) about {name} and did not relent; try again in {wait}.",
        "Hub 要求减少对 {name} 的请求（429）；请过 {wait} 再试。",
    ),
    (
        "{name} is gated: ask for access on its page {address}, then run: {command}.",
        "{name} 需要申请访问：请在 {address} 申请，然后运行：{command}",
    ),
    ("{name} has no such revision on the Hub; check the name.", "Hub 上的 {name} 没有这个版本；请检查名称。"),
    (
        "The Hub cannot answer about {name} ({status}); try again later.",
        "Hub 无法应答关于 {name} 的请求（{status}）；请稍后再试。",
    ),
)
