"""What the library may say about a request, and the same in Chinese.

The library speaks English and knows nothing of a page. Here each of its sentences stands as a template,
`{name}` for whatever it fills in; the first that fits a sentence gives its Chinese form.
"""

OF_REQUESTS: tuple[tuple[str, str], ...] = (
    # What was left out of a dialogue or a text
    (
        "The oldest message was left out: the model's context holds {size} tokens.",
        "最早的 1 条消息未被读取：模型的上下文为 {size} 个词元。",
    ),
    (
        "The {n} oldest messages were left out: the model's context holds {size} tokens.",
        "最早的 {n} 条消息未被读取：模型的上下文为 {size} 个词元。",
    ),
    (
        "The system message has {n} tokens, too many to keep; it was left out.",
        "系统消息有 {n} 个词元，太长而未被读取。",
    ),
    (
        "The {what} has {n} tokens; the model read only the last {kept}.",
        "文本有 {n} 个词元，模型只读了最后 {kept} 个。",
    ),
    ("The {what} has {n} tokens; the model read only the first {kept}.", "文本有 {n} 个词元，模型只读了前 {kept} 个。"),
    # Texts, dialogues and options
    ("The text is empty; write something.", "文本是空的，请写点什么。"),
    ("The last message is empty; write something.", "最后一条消息是空的，请写点什么。"),
    (
        "The last message is from the {role}; it must be the user's for the model to reply.",
        "最后一条消息来自 {role}；必须是用户的消息，模型才能回答。",
    ),
    (
        'A dialogue is a list of {{"role": ..., "content": ...}}; give at least one message.',
        '对话是 {{"role": ..., "content": ...}} 的列表；请至少给出一条消息。',
    ),
    (
        'A message must be {{"role": ..., "content": ...}}; correct the history.',
        '一条消息必须是 {{"role": ..., "content": ...}}；请更正历史。',
    ),
    ("The role {role} is unknown; choose one of {roles}.", "未知的角色 {role}；请从 {roles} 中选择。"),
    (
        "The content of a message must be text, not {kind}; correct the history.",
        "消息的内容必须是文本，而不是 {kind}；请更正历史。",
    ),
    (
        "A context of {size} tokens has no room for a message beside the reply; shorten it.",
        "{size} 个词元的上下文容不下消息和回答；请缩短回答。",
    ),
    (
        "The start of the answer has {n} tokens and fills the context; shorten it.",
        "回答的开头有 {n} 个词元，占满了上下文；请缩短。",
    ),
    (
        "A model for {task} takes a text, not {kind}; pass a string.",
        "{task} 模型需要文本，而不是 {kind}；请给出字符串。",
    ),
    ("This model is for {task}, not for chat; use generate.", "这个模型用于 {task}，不能聊天；请用 generate。"),
    ("Expected text, not {kind}; pass a string.", "需要文本，而不是 {kind}；请给出字符串。"),
    (
        "The text holds a lone surrogate ({code}) at character {place}; remove it.",
        "文本第 {place} 个字符是孤立的代理项（{code}）；请删除。",
    ),
    (
        "Expected a list of token ids, not {kind}; pass whole numbers.",
        "需要词元编号的列表，而不是 {kind}；请给出整数。",
    ),
    (
        "A token id must be a whole number, not {value}; correct the ids.",
        "词元编号必须是整数，而不是 {value}；请更正。",
    ),
    (
        "The token id {id} is outside the vocabulary of {size}; check the tokenizer.",
        "词元编号 {id} 不在大小为 {size} 的词表中；请检查分词器。",
    ),
    (
        "token id {id} is outside the vocabulary of {size}; check the ids.",
        "词元编号 {id} 不在大小为 {size} 的词表中；请检查。",
    ),
    (
        "The {what} holds the id {id}, outside the vocabulary of {size}; check the tokenizer.",
        "输入含有编号 {id}，不在大小为 {size} 的词表中；请检查分词器。",
    ),
    (
        "The {what} has {n} tokens, more than the model's max_length {size}; shorten it.",
        "输入有 {n} 个词元，超过模型的上限 {size}；请缩短。",
    ),
    # Models and backends
    (
        "The model was pulled in 8 bits alone, which have no attention maps; load it on onnx.",
        "这个模型只取了 8 位权重，没有注意力图；请用 onnx 加载。",
    ),
    ("There is no model {name}; choose one of {names}.", "没有模型 {name}；请从 {names} 中选择。"),
    ("This page has no model for {task}; start it with one.", "本页没有用于 {task} 的模型；请在启动时给出一个。"),
    (
        "The backend must be a name, not {value}; choose auto or one that is available.",
        "后端必须是名称，而不是 {value}；请选 auto 或一个可用的后端。",
    ),
    ("There is no backend {name}; choose {names}.", "没有后端 {name}；请选择 {names}。"),
    ("The backend {name} cannot run {folder}: {reason}.", "后端 {name} 无法运行 {folder}：{reason}。"),
    (
        "No backend can run {folder}. onnx: {onnx}; eager: {eager}.",
        "没有后端能运行 {folder}。onnx：{onnx}；eager：{eager}。",
    ),
    ("Running on PyTorch instead of ONNX Runtime: {reason}.", "改用 PyTorch 而非 ONNX Runtime：{reason}。"),
    ("the folder has no {files}, make it with: {command}", "文件夹中没有 {files}，用此命令生成：{command}"),
    ("the package {name} is missing, get it with: {command}", "缺少 {name} 包，用此命令安装：{command}"),
    ("it runs on the CPU, not on {device}; leave the device out", "它只在 CPU 上运行，不能用 {device}；请不要指定设备"),
    (
        "the device {device} needs an NVIDIA GPU and its driver, and none was found; use cpu",
        "设备 {device} 需要 NVIDIA GPU 及其驱动，但没有找到；请用 cpu",
    ),
    ("There is no device {device}; choose {devices}.", "没有设备 {device}；请选择 {devices}。"),
    ("The device {device} is not supported; choose {devices}.", "不支持设备 {device}；请选择 {devices}。"),
    (
        "The device {device} is not there ({n} CUDA devices found); choose cpu.",
        "没有设备 {device}（找到 {n} 个 CUDA 设备）；请选择 cpu。",
    ),
    (
        "The model's scores are not finite numbers; its weights are damaged, so restore them.",
        "模型给出的分数不是有限数：权重已损坏，请恢复。",
    ),
    # Options; these fit much, so they come last
    (
        "num_beams is {beams} and temperature {temperature}, but beam search draws nothing; "
        "set num_beams to 1 or temperature to 0.",
        "num_beams 为 {beams}，temperature 为 {temperature}，但束搜索不采样；请将前者设为 1 或后者设为 0。",
    ),
    (
        "{name} is {value}; choose a whole number from {low} to {high}.",
        "{name} 为 {value}；请选择 {low} 到 {high} 的整数。",
    ),
    ("{name} is {value}; choose one of {choices}.", "{name} 为 {value}；请从 {choices} 中选择。"),
    (
        "{name} is {value}; choose 0 (greedy) or a finite number above it.",
        "{name} 为 {value}；请选择 0（贪心）或大于 0 的有限数。",
    ),
    (
        "{name} is {value}; choose a {number} above 0, up to {high}.",
        "{name} 为 {value}；请选择大于 0 且不超过 {high} 的数。",
    ),
    ("{name} is {value}; choose a {number} from {low} to {high}.", "{name} 为 {value}；请选择 {low} 到 {high} 的数。"),
)


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
