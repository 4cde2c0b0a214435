"""The library's messages in Chinese: each template as it is raised, with the same fields.

Tests provoke the errors that a visitor can meet and name every template that is missing here.
"""

CHINESE: dict[str, str] = {
    # What the page itself refuses
    "There is no text yet; write something.": "还没有文字，请先写点什么。",
    "The text has {n:,} characters; at most {limit:,} fit. Please shorten it.": (
        "文本有 {n:,} 个字符，最多 {limit:,} 个。请缩短。"
    ),
    "The text holds half of a character (a lone surrogate); remove it.": "文本含有半个字符（孤立的代理项）；请删除。",
    "The history must be a list of at most {limit} messages with role and content.": (
        "历史必须是最多 {limit} 条、带有 role 和 content 的消息列表。"
    ),
    "This page searches with at most {limit} beams.": "本页束宽最多 {limit}。",
    "This page writes at most {limit} tokens per answer.": "本页每个回答最多 {limit} 个词元。",
    "{n} requests are waiting already; please try again in a moment.": "已有 {n} 个请求在等待，请稍后再试。",
    "This took longer than {seconds:g} s, the time limit; try a shorter text.": (
        "用时超过了 {seconds:g} 秒的上限；请换短一些的文本。"
    ),
    "The request is larger than {limit} MB; send less.": "请求超过 {limit} MB；请少发一些。",
    "This page takes no files; send text.": "本页不接收文件；请发送文本。",
    "This request makes no sense here; GET /gradio_api/info says what can be asked.": (
        "无法理解这个请求；GET /gradio_api/info 说明可以怎样请求。"
    ),
    "There is no model {name!r}; choose one of {names}.": "没有模型 {name!r}；请从 {names} 中选择。",
    "This page has no model for {task}; start it with one.": "本页没有用于 {task} 的模型；请在启动时给出一个。",
    # What was left out of a dialogue or a text
    "The oldest message was left out: the model's context holds {size} tokens.": (
        "最早的 1 条消息未被读取：模型的上下文为 {size} 个词元。"
    ),
    "The {n} oldest messages were left out: the model's context holds {size} tokens.": (
        "最早的 {n} 条消息未被读取：模型的上下文为 {size} 个词元。"
    ),
    "The system message has {n} tokens, too many to keep; it was left out.": "系统消息有 {n} 个词元，太长而未被读取。",
    "The message has {n} tokens; the model read only the last {kept}.": "消息有 {n} 个词元，模型只读了最后 {kept} 个。",
    "The text has {n} tokens; the model read only the last {kept}.": "文本有 {n} 个词元，模型只读了最后 {kept} 个。",
    "The text has {n} tokens; the model read only the first {kept}.": "文本有 {n} 个词元，模型只读了前 {kept} 个。",
    # Texts, dialogues and token ids
    "The text is empty; write something.": "文本是空的，请写点什么。",
    "The last message is empty; write something.": "最后一条消息是空的，请写点什么。",
    "The last message is from the {role}; it must be the user's for the model to reply.": (
        "最后一条消息来自 {role}；必须是用户的消息，模型才能回答。"
    ),
    'A dialogue is a list of {{"role": ..., "content": ...}}; give at least one message.': (
        '对话是 {{"role": ..., "content": ...}} 的列表；请至少给出一条消息。'
    ),
    'A message must be {{"role": ..., "content": ...}}; correct the history.': (
        '一条消息必须是 {{"role": ..., "content": ...}}；请更正历史。'
    ),
    "The role {role!r} is unknown; choose one of {roles}.": "未知的角色 {role!r}；请从 {roles} 中选择。",
    "The content of a message must be text, not {kind}; correct the history.": (
        "消息的内容必须是文本，而不是 {kind}；请更正历史。"
    ),
    "A context of {size} tokens has no room for a message beside the reply; shorten it.": (
        "{size} 个词元的上下文容不下消息和回答；请缩短回答。"
    ),
    "The start of the answer has {n} tokens and fills the context; shorten it.": (
        "回答的开头有 {n} 个词元，占满了上下文；请缩短。"
    ),
    "A model for {task} takes a text, not {kind}; pass a string.": (
        "{task} 模型需要文本，而不是 {kind}；请给出字符串。"
    ),
    "This model is for {task}, not for chat; use generate.": "这个模型用于 {task}，不能聊天；请用 generate。",
    "Expected text, not {kind}; pass a string.": "需要文本，而不是 {kind}；请给出字符串。",
    "The text holds a lone surrogate (U+{ord:04X}) at character {start}; remove it.": (
        "文本第 {start} 个字符是孤立的代理项（U+{ord:04X}）；请删除。"
    ),
    "Expected a list of token ids, not {kind}; pass whole numbers.": "需要词元编号的列表，而不是 {kind}；请给出整数。",
    "A token id must be a whole number, not {value!r}; correct the ids.": (
        "词元编号必须是整数，而不是 {value!r}；请更正。"
    ),
    "The token id {id} is outside the vocabulary of {size}; check the tokenizer.": (
        "词元编号 {id} 不在大小为 {size} 的词表中；请检查分词器。"
    ),
    "token id {id} is outside the vocabulary of {size}; check the ids.": (
        "词元编号 {id} 不在大小为 {size} 的词表中；请检查。"
    ),
    # Options and ranges
    "num_beams is {beams} and temperature {temperature}, but beam search draws nothing; "
    "set num_beams to 1 or temperature to 0.": (
        "num_beams 为 {beams}，temperature 为 {temperature}，但束搜索不采样；请将前者设为 1 或后者设为 0。"
    ),
    "{name} is {value}; choose a whole number from {low} to {high}.": (
        "{name} 为 {value}；请选择 {low} 到 {high} 的整数。"
    ),
    "{name} is {value}; choose one of {choices}.": "{name} 为 {value}；请从 {choices} 中选择。",
    "{name} is {value}; choose a number of at least {low:g}.": "{name} 为 {value}；请选择不小于 {low:g} 的数。",
    "{name} is {value}; choose a number above {low:g}, up to {high:g}.": (
        "{name} 为 {value}；请选择大于 {low:g} 且不超过 {high:g} 的数。"
    ),
    "{name} is {value}; choose a number from {low:g} up to, not including, {high:g}.": (
        "{name} 为 {value}；请选择不小于 {low:g} 且小于 {high:g} 的数。"
    ),
    "{name} is {value}; choose a number from {low:g} to {high:g}.": (
        "{name} 为 {value}；请选择 {low:g} 到 {high:g} 的数。"
    ),
    # Backends and devices
    "There is no backend {name!r}; choose auto, {names}.": "没有后端 {name!r}；请选择 auto、{names}。",
    "The backend {name} cannot run {folder}: {reason}.": "后端 {name} 无法运行 {folder}：{reason}。",
    "No backend can run {folder}. onnx: {onnx}; eager: {eager}.": (
        "没有后端能运行 {folder}。onnx：{onnx}；eager：{eager}。"
    ),
    "the folder has no {files}, make it with: {command}": "文件夹中没有 {files}，用此命令生成：{command}",
    "the package {name} is missing, get it with: {command}": "缺少 {name} 包，用此命令安装：{command}",
    "it runs on the CPU, not on {device}; leave the device out": "它只在 CPU 上运行，不能用 {device}；请不要指定设备",
    "the device {device} needs an NVIDIA GPU and its driver, and none was found; use cpu": (
        "设备 {device} 需要 NVIDIA GPU 及其驱动，但没有找到；请用 cpu"
    ),
    "The model's scores are not finite numbers; its weights are damaged, so restore them.": (
        "模型给出的分数不是有限数：权重已损坏，请恢复。"
    ),
    # A folder and its configuration files
    "{folder} is not a folder; name a model folder such as checkpoints/translate.": (
        "{folder} 不是文件夹；请给出一个模型文件夹，例如 checkpoints/translate。"
    ),
    "{folder} lacks {files}; restore the files or train the model again.": (
        "{folder} 缺少 {files}；请恢复文件或重新训练模型。"
    ),
    "{path} does not exist; a model folder needs it.": "{path} 不存在，而模型文件夹需要它。",
    "{path} cannot be read ({reason}); check the folder.": "无法读取 {path}（{reason}）；请检查文件夹。",
    "{path} is not readable JSON ({detail}); restore it from its source.": (
        "{path} 不是可读的 JSON（{detail}）；请从来源恢复。"
    ),
    "{path} holds a {kind}, not a JSON object; restore it.": "{path} 的内容是 {kind}，而不是 JSON 对象；请恢复。",
    "{path} has unknown keys {keys}; remove them (known: {known}).": (
        "{path} 含有未知的键 {keys}；请删除（已知：{known}）。"
    ),
    "{path} lacks the keys {keys}; add them.": "{path} 缺少键 {keys}；请补上。",
    "{where}: {reason}": "{where}：{reason}",
    "{where}: {name} must be {kinds}, not {value}; correct it.": (
        "{where}：{name} 应为{kinds}，而不是 {value}；请更正。"
    ),
    "a whole number": "整数",
    "a number": "数",
    "true or false": " true 或 false",
    "text": "文本",
    "a list": "列表",
    "an object": "对象",
    "n_encoder_layers is {n_encoder_layers}, but a decoder-only model has no encoder; set it to 0.": (
        "n_encoder_layers 为 {n_encoder_layers}，但 decoder-only 模型没有编码器；请设为 0。"
    ),
    "d_model is {d_model}, but sinusoidal positions pair a sine with a cosine; make it even.": (
        "d_model 为 {d_model}，但正弦位置编码由正弦与余弦成对组成；请用偶数。"
    ),
    "n_heads is {n_heads}, which does not divide d_model {d_model}; choose a divisor.": (
        "n_heads 为 {n_heads}，不能整除 d_model {d_model}；请选择它的约数。"
    ),
    "d_model {d_model} over n_heads {n_heads} gives heads of width {d_head}; make it a multiple of 8, "
    "as the fused attention kernels need.": (
        "d_model {d_model} 除以 n_heads {n_heads} 得到宽 {d_head} 的头；请使其为 8 的倍数，融合注意力需要如此。"
    ),
    "roles must name the tokens of user and assistant for a chat model; add them.": (
        "roles 必须为聊天模型给出 user 和 assistant 的词元；请补上。"
    ),
    "{path}: max_source_tokens is {max_source_tokens}, above the model's max_length of {max_length}; lower it.": (
        "{path}：max_source_tokens 为 {max_source_tokens}，超过模型的 max_length {max_length}；请调低。"
    ),
    # Weights
    "{path} is not a whole safetensors file ({detail}); restore it from its source.": (
        "{path} 不是完整的 safetensors 文件（{detail}）；请从来源恢复。"
    ),
    "{path}: {embedding} should have shape ({vocabulary}, {width}) as {config} says, but the file has {found}; "
    "the two files are of different models.": (
        "{path}：按 {config}，{embedding} 的形状应为 ({vocabulary}, {width})，而文件中是 {found}；"
        "两个文件属于不同的模型。"
    ),
    "{path} holds {n} numbers, but {config} describes a model of {wanted}; the two files are of different models.": (
        "{path} 含 {n} 个数，而 {config} 描述的模型有 {wanted} 个；两个文件属于不同的模型。"
    ),
    "{path}: {name} is stored as {dtype}, not as {stored_as}; restore the file.": (
        "{path}：{name} 存为 {dtype}，而不是 {stored_as}；请恢复文件。"
    ),
    "{path} lacks {names}; it belongs to a model of another shape.": ("{path} 缺少 {names}；它属于另一种形状的模型。"),
    "{path} has the unknown {names}; it belongs to a model of another shape.": (
        "{path} 含有未知的 {names}；它属于另一种形状的模型。"
    ),
    "{path}: {name} has shape {shape}, but the config asks for {wanted}; it belongs to a model of another shape.": (
        "{path}：{name} 的形状为 {shape}，而配置要求 {wanted}；它属于另一种形状的模型。"
    ),
    # The tokenizer
    "{path} is not a tokenizer file ({detail}); restore it from its source.": (
        "{path} 不是分词器文件（{detail}）；请从来源恢复。"
    ),
    "{path} is larger than {n} bytes; it is not a tokenizer of ours.": "{path} 超过 {n} 字节，不是本项目的分词器。",
    "{path} lacks the special tokens {tokens}; train it with this project.": (
        "{path} 缺少特殊词元 {tokens}；请用本项目训练。"
    ),
    "{path} does not give every text back unchanged; train it with this project.": (
        "{path} 不能原样还原每段文本；请用本项目训练。"
    ),
    "{path} has no token with the id {id}; restore it from its source.": (
        "{path} 没有编号为 {id} 的词元；请从来源恢复。"
    ),
    "{path}: token {token!r:.80} is not byte-level; train it again.": (
        "{path}：词元 {token!r:.80} 不是字节级的；请重新训练。"
    ),
    "{path} has {n} tokens, but {config} says vocab_size {wanted}; use the tokenizer the model was trained with.": (
        "{path} 有 {n} 个词元，而 {config} 的 vocab_size 为 {wanted}；请用训练模型时的分词器。"
    ),
    "{path}: {name} is {token}, which is no special token of {tokenizer}; use the file the model was trained with.": (
        "{path}：{name} 为 {token}，不是 {tokenizer} 的特殊词元；请用训练模型时的文件。"
    ),
    # Graphs and archives
    "{path} does not exist; make it with: python -m export all {parent}": (
        "{path} 不存在，用此命令生成：python -m export all {parent}"
    ),
    "{path} was made for another {file} than the one beside it; {again}": (
        "{path} 由另一个 {file} 生成，而不是旁边的这个；{again}"
    ),
    "{path} was made from another {weights} than the one beside it; make it again with: python -m export all "
    "{folder}": "{path} 由另一个 {weights} 生成，而不是旁边的这个；用此命令重新生成：python -m export all {folder}",
    "{path} takes weights from {file!r} at {offset}, no tensor of {weights}; {again}": (
        "{path} 从 {file!r} 的 {offset} 处取权重，那里不是 {weights} 的张量；{again}"
    ),
    "{path} is larger than {n} bytes, so it holds weights; {again}": "{path} 超过 {n} 字节，说明其中含有权重；{again}",
    "{path} is not a whole graph of ours ({reason}); {again}": "{path} 不是本项目的完整计算图（{reason}）；{again}",
    "make it again with: python -m export all {folder}": "用此命令重新生成：python -m export all {folder}",
    "ONNX Runtime cannot load {path} ({reason}); make it again with: python -m export all {parent}": (
        "ONNX Runtime 无法加载 {path}（{reason}）；用此命令重新生成：python -m export all {parent}"
    ),
    "{path} is not a TorchScript archive ({detail}); export it again.": (
        "{path} 不是 TorchScript 文件（{detail}）；请重新导出。"
    ),
    "{path} holds other weights than the folder ({name} differs); export it again.": (
        "{path} 的权重与文件夹不同（{name} 不一致）；请重新导出。"
    ),
    # The parity report
    "{path} is larger than {n} bytes; it is no report of ours.": "{path} 超过 {n} 字节，不是本项目的报告。",
    "{where} is not a parity report ({reason}); make it again: python -m export all.": (
        "{where} 不是一致性报告（{reason}）；重新生成：python -m export all"
    ),
    "{where} was edited after it was written; make it again: python -m export all.": (
        "{where} 写成后被改动过；重新生成：python -m export all"
    ),
    "Parity failed in {n} of {n_2} cases: {named}{more}.": "{n_2} 项比较中有 {n} 项不一致：{named}{more}",
    "{path} does not cover {name}; make the report again: python -m export all {folder}.": (
        "{path} 未包含 {name}；重新生成报告：python -m export all {folder}"
    ),
    "{path} is not the file that {parity} vouches for; restore it, or make the report again: "
    "python -m export all {folder}.": (
        "{path} 不是 {parity} 所担保的文件；请恢复它，或重新生成报告：python -m export all {folder}"
    ),
    # A model from the Hub
    "There is no folder {name} here, and the Hub has no model of that name that this token may see; check the name.": (
        "这里没有文件夹 {name}，Hub 上也没有此令牌可见的同名模型；请检查名称。"
    ),
    "{repo_id} has no {parity}, so nothing vouches for its files; load it with trust_unverified=True "
    "if you trust its author.": (
        "{repo_id} 没有 {parity}，没有什么为它的文件担保；若信任作者，请用 trust_unverified=True 加载。"
    ),
    "{name} has no {file}, although its {report} names it; tell its author.": (
        "{name} 没有 {file}，而它的 {report} 列出了它；请告知作者。"
    ),
    "{where}: {name} is not the file that {parity} vouches for; the download was damaged or the repo was tampered "
    "with. The bad copy is removed: try again.": (
        "{where}：{name} 不是 {parity} 所担保的文件：下载已损坏或仓库被篡改。坏的副本已删除，请再试一次。"
    ),
    "The client is offline (HF_HUB_OFFLINE), so {name} cannot be reached; unset the variable.": (
        "客户端处于离线状态（HF_HUB_OFFLINE），无法取得 {name}；请取消该变量。"
    ),
    "{name} is not in the cache, and the client is offline; load it once with a network.": (
        "{name} 不在缓存中，且客户端离线；请先联网加载一次。"
    ),
    "The Hub at {address} cannot be reached ({detail}); check the network and try again.": (
        "无法连接 Hub（{address}，{detail}）；请检查网络后再试。"
    ),
    "The answer of {address} about {name} makes no sense; try again later.": (
        "{address} 关于 {name} 的应答无法理解；请稍后再试。"
    ),
    "The Hub finds the request for {about} malformed ({detail}); correct it.": (
        "Hub 认为对 {about} 的请求有误（{detail}）；请更正。"
    ),
    "The Hub does not accept the token (401) for {about}; make a new one at {endpoint}/settings/tokens and run: "
    "hf auth login.": (
        "Hub 不接受用于 {about} 的令牌（401）；请在 {endpoint}/settings/tokens 新建一个并运行：hf auth login"
    ),
    "The token has no right to do this with {about} (403); use one with write access to that namespace.": (
        "令牌无权对 {about} 这样做（403）；请用对该命名空间有写权限的令牌。"
    ),
    "The Hub has no {about}, or it is private and the token may not see it (404); check the name.": (
        "Hub 上没有 {about}，或它是私有的而令牌无权查看（404）；请检查名称。"
    ),
    "The Hub asks for fewer requests (429) about {about} and did not relent; try again in {wait}.": (
        "Hub 要求减少对 {about} 的请求（429）；请过{wait}再试。"
    ),
    "{seconds:.0f} seconds": " {seconds:.0f} 秒",
    "a few minutes": "几分钟",
    "{about} is gated: ask for access on its page {endpoint}/{about}, then run: hf auth login.": (
        "{about} 需要申请访问：请在 {endpoint}/{about} 申请，然后运行：hf auth login"
    ),
    "{about} has no such revision on the Hub; check the name.": "Hub 上的 {about} 没有这个版本；请检查名称。",
    "The Hub cannot answer about {about} ({status}); try again later.": (
        "Hub 无法应答关于 {about} 的请求（{status}）；请稍后再试。"
    ),
}
