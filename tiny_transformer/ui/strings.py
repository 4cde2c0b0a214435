"""Every sentence of the page, in English and Chinese.

`{name}` marks a value. What the page shows at once is translated in the browser; what a handler says
is translated here, in the language the browser asked for.
"""

from tiny_transformer.ui.languages import Language

STRINGS: dict[str, tuple[str, str]] = {
    # Page
    "heading": (
        "<h1>Tiny Transformer</h1><p>Small enough to read, really trained, the same on every backend.</p>",
        "<h1>Tiny Transformer</h1><p>小到可以通读，真正训练过，在每个后端上结果一致。</p>",
    ),
    "tab_chat": ("Chat", "对话"),
    "tab_compare": ("Compare", "比较后端"),
    "tab_inside": ("Look inside", "看看内部"),
    "tab_about": ("About", "关于模型"),
    "model": ("Model", "模型"),
    "task_chat": ("Chat", "聊天"),
    "task_translate": ("Translate", "翻译"),
    "task_complete": ("Complete", "续写"),
    "model_problem": ("This model cannot be used: {problem}", "无法使用这个模型：{problem}"),
    # Chat
    "chat_label": ("Conversation", "对话内容"),
    "chat_placeholder": (
        "<h2>Say hello</h2><p>A small model, trained from scratch, answers on this machine. It likes small talk.</p>",
        "<h2>打个招呼吧</h2><p>一个从零训练的小模型会在这台机器上回答你。它擅长闲聊（英语）。</p>",
    ),
    "translate_placeholder": (
        "<h2>Write German or Chinese</h2><p>Each message is translated into English.</p>",
        "<h2>写一句中文或德语</h2><p>每条消息都会被译成英语。</p>",
    ),
    "complete_placeholder": (
        "<h2>Begin a text</h2><p>The model goes on.</p>",
        "<h2>写个开头</h2><p>模型会接着写。</p>",
    ),
    "message": ("Your message", "你的消息"),
    "message_hint": ("Write a message", "输入消息"),
    "send": ("Send", "发送"),
    "stop": ("Stop", "停止"),
    "stopped": ("stopped", "已停止"),
    "working": ("…", "…"),
    "line_tokens": ("{n} tokens", "{n} 个词元"),
    "line_token": ("1 token", "1 个词元"),
    "line_speed": ("{speed} tokens/s", "{speed} 词元/秒"),
    "line_first": ("first after {ms} ms", "首个词元 {ms} 毫秒"),
    "line_language": ("read as {name}", "识别为{name}"),
    "line_drawn": ("drawn at temperature {temperature}", "以温度 {temperature} 采样"),
    "line_length": ("ended at the token limit", "达到词元上限"),
    "line_context": ("ended at the context's end", "达到上下文末尾"),
    "line_time": ("ended after {seconds} s, the time limit", "达到 {seconds} 秒的时间上限"),
    "line_empty": ("(no text)", "（没有文字）"),
    "language_de": ("German", "德语"),
    "language_zh": ("Chinese", "中文"),
    "language_en": ("English", "英语"),
    # Settings
    "backend": ("Backend", "后端"),
    "backend_auto": ("Backend: automatic", "后端：自动"),
    "backend_eager": ("PyTorch", "PyTorch"),
    "backend_torchscript": ("TorchScript", "TorchScript"),
    "backend_onnx": ("ONNX Runtime", "ONNX Runtime"),
    "backend_onnx-int8": ("ONNX Runtime 8-bit", "ONNX Runtime 8 位"),
    "backend_missing": ("{n} not available: why?", "{n} 个不可用：为什么？"),
    "decoding": ("Decoding", "解码"),
    "more": ("More", "更多"),
    "temperature": ("Temperature", "温度"),
    "temperature_info": (
        "0 always takes the likeliest token; higher values dare more.",
        "0 总是取最可能的词元；越高越大胆。",
    ),
    "max_new_tokens": ("Longest answer", "最长回答"),
    "max_new_tokens_info": ("In tokens, a few letters each.", "以词元计，每个词元几个字母。"),
    "top_k": ("Top-k", "Top-k"),
    "top_k_info": ("Draw among the k likeliest; 0 means all.", "只在最可能的 k 个中采样；0 为全部。"),
    "top_p": ("Top-p", "Top-p"),
    "top_p_info": (
        "Draw among the likeliest that together reach this probability.",
        "只在合计达到此概率的最可能词元中采样。",
    ),
    "repetition_penalty": ("Repetition penalty", "重复惩罚"),
    "repetition_penalty_info": (
        "Above 1 weakens tokens that the text has already.",
        "大于 1 会削弱文本中已出现的词元。",
    ),
    "num_beams": ("Beams", "束宽"),
    "num_beams_info": (
        "Follow several candidates and keep the best; the text then comes at once.",
        "同时跟踪多个候选并取最优；文字会一次给出。",
    ),
    "seed": ("Seed", "随机种子"),
    "seed_info": (
        "The same seed draws the same text; empty means a new one.",
        "同一种子得到同样的文字；留空则每次不同。",
    ),
    # Compare
    "compare_intro": (
        "One prompt, every backend at once. Watch them race, then read how far their numbers are apart.",
        "同一个输入，所有后端同时运行。看它们赛跑，再看它们的数字相差多少。",
    ),
    "compare_run": ("Compare", "比较"),
    "compare_text": ("Text", "文本"),
    "compare_hint": ("A sentence for all backends", "给所有后端的一句话"),
    "compare_empty": ("The answers and the verdict appear here.", "各后端的回答和结论会显示在这里。"),
    "compare_waiting": ("waiting", "等待中"),
    "compare_loading": ("loading", "加载中"),
    "compare_running": ("writing", "书写中"),
    "compare_done": ("done", "完成"),
    "compare_failed": ("cannot run", "无法运行"),
    "column_backend": ("Backend", "后端"),
    "column_text": ("Text", "文字"),
    "column_difference": ("Largest logit difference", "logit 最大差"),
    "column_speed": ("Tokens/s", "词元/秒"),
    "column_first": ("First token", "首个词元"),
    "column_memory": ("Memory to load", "加载内存"),
    "cell_reference": ("reference", "基准"),
    "cell_equal": ("equal", "一致"),
    "cell_differs": ("differs from token {n} on", "从第 {n} 个词元起不同"),
    "cell_allowed": ("{value} (≤ {tolerance} allowed)", "{value}（允许 ≤ {tolerance}）"),
    "cell_exact": ("0 (must be exact)", "0（必须完全相同）"),
    "cell_by_task": ("{value} (8-bit is judged by its task)", "{value}（8 位按任务评判）"),
    "verdict_equal": (
        "Same text, same numbers: {n} backends agree on all {tokens} tokens, "
        "and no logit differs by more than {value}.",
        "文字相同，数字相同：{n} 个后端在全部 {tokens} 个词元上一致；任一 logit 的最大差为 {value}。",
    ),
    "verdict_tie": (
        "The numbers agree within the tolerance, but two tokens are tied there, so a text differs from token {n} on.",
        "数字在容差之内一致，但有两个词元概率并列，因此文字从第 {n} 个词元起不同。",
    ),
    "verdict_differ": (
        "{name} differs: {value} where at most {tolerance} is allowed.",
        "{name} 不一致：差 {value}，最多允许 {tolerance}。",
    ),
    "verdict_alone": (
        "Only {name} can run here, so there is nothing to compare it with.",
        "此处只能运行 {name}，无从比较。",
    ),
    "verdict_int8": (" The 8-bit weights are rounded, so their text may differ.", "8 位权重经过舍入，文字可能不同。"),
    # Look inside
    "inside_intro": (
        "See how the model decides: which token, how sure it was, what else it considered, and where it looked.",
        "看模型如何决定：选了哪个词元、有多确定、还考虑过什么、看向了哪里。",
    ),
    "inside_run": ("Look inside", "看看内部"),
    "inside_text": ("Text", "文本"),
    "inside_hint": ("A short sentence", "一个短句"),
    "inside_read": ("What the model reads", "模型读到的"),
    "inside_read_info": (
        "The text is cut into tokens; ␣ is a space, and a number is a byte of a longer character.",
        "文本被切成词元；␣ 表示空格，数字表示较长字符的一个字节。",
    ),
    "inside_written": ("What it writes", "模型写出的"),
    "inside_written_info": (
        "The stronger the colour, the less sure the model was. Click a token to see the alternatives.",
        "颜色越深，模型越不确定。点击词元查看其他候选。",
    ),
    "inside_sure": ("sure", "确定"),
    "inside_unsure": ("unsure", "不确定"),
    "inside_empty": (
        "Tokens, probabilities and attention maps appear here.",
        "词元、概率和注意力图会显示在这里。",
    ),
    "inside_token": ("{token}, {percent} likely", "{token}，概率 {percent}"),
    "alternatives": ("Instead of {token}", "{token} 的其他候选"),
    "alternatives_info": ("Choose one, and the model goes on from there.", "选择一个，模型会从那里继续写。"),
    "attention": ("Where it looked", "注意力"),
    "attention_kind": ("Attention", "注意力"),
    "attention_encoder": ("Encoder", "编码器"),
    "attention_decoder": ("Decoder", "解码器"),
    "attention_cross": ("Translation to source", "译文到原文"),
    "attention_layer": ("Layer", "层"),
    "attention_head": ("Head", "头"),
    "attention_average": ("average", "平均"),
    "attention_all": ("all", "全部"),
    "attention_encoder_info": (
        "Each row is a source token; it gathers from the tokens of its columns.",
        "每行是一个原文词元；它从各列的词元汇集信息。",
    ),
    "attention_decoder_info": (
        "Each row is a token the decoder has read; it can only look back.",
        "每行是解码器已读的词元；它只能往回看。",
    ),
    "attention_cross_info": (
        "Each row is the token being written, each column a source token: the alignment of the translation.",
        "每行是正在写的词元，每列是原文词元：这就是译文的对齐。",
    ),
    "attention_strongest": ("Strongest link of each row", "每行最强的联系"),
    "attention_link": ("{row} → {column}: {percent}", "{row} → {column}：{percent}"),
    "positions": ("Positions", "位置编码"),
    "positions_sinusoidal": (
        "Sine and cosine waves of growing length, one row a position: how the model knows the order.",
        "波长递增的正弦与余弦，每行一个位置：模型由此知道词序。",
    ),
    "positions_learned": ("Learned vectors, one row a position.", "学得的向量，每行一个位置。"),
    "positions_rotary": (
        "Queries and keys are rotated by an angle that grows with the position; this is the cosine of that angle.",
        "查询与键按随位置增大的角度旋转；此处是该角度的余弦。",
    ),
    "positions_none": ("This model has no positional encoding.", "这个模型没有位置编码。"),
    "positions_axes": ("positions ↓, dimensions →", "位置 ↓，维度 →"),
    "shown_cut": ("Only the first {n} tokens are shown.", "只显示前 {n} 个词元。"),
    # About
    "about_verified": ("Verified.", "已验证。"),
    "about_unverified": ("Unverified.", "未验证。"),
    "about_verified_text": (
        "{cases} comparisons of {backends} with PyTorch agree, for exactly these files.",
        "{backends} 与 PyTorch 的 {cases} 项比较全部一致，且只对这些文件有效。",
    ),
    "about_unverified_text": (
        "This folder has no parity report; make one with: {command}",
        "这个文件夹没有一致性报告；用此命令生成：{command}",
    ),
    "about_damaged_text": ("The report does not hold: {problem}", "报告不成立：{problem}"),
    "about_sizes": ("Sizes", "规模"),
    "about_parameters": ("parameters", "参数"),
    "about_vocabulary": ("vocabulary", "词表"),
    "about_layers": ("layers", "层数"),
    "about_width": ("width", "宽度"),
    "about_heads": ("heads", "头数"),
    "about_context": ("context", "上下文"),
    "about_architecture": ("architecture", "架构"),
    "about_training": ("Training", "训练"),
    "about_curve": ("Loss over {steps} steps", "{steps} 步的损失"),
    "about_no_training": ("Nothing is recorded about the training.", "没有训练记录。"),
    "about_results": ("Results on unseen text", "未见文本上的结果"),
    "about_test": ("Test set", "测试集"),
    "about_figure": ("Figure", "指标"),
    "about_value": ("Value", "数值"),
    "about_parity": ("Parity report", "一致性报告"),
    "about_case": ("Comparison", "比较项"),
    "about_difference": ("Largest difference", "最大差"),
    "about_tolerance": ("Allowed", "允许"),
    "about_cases": ("{n} comparisons", "{n} 项比较"),
    "about_digest": ("Digest of the report", "报告摘要"),
    "about_files": ("Files", "文件"),
    "about_file": ("File", "文件"),
    "about_size": ("Size", "大小"),
    "about_on_demand": ("made on request", "按需生成"),
    "about_code": ("Use it in one line", "一行代码使用它"),
    "about_python": ("Python", "Python"),
    "about_http": ("HTTP", "HTTP"),
    "about_embed": ("ONNX, without PyTorch", "ONNX，无需 PyTorch"),
    "about_card": ("Model card", "模型卡"),
    "about_no_card": ("This folder has no model card.", "这个文件夹没有模型卡。"),
    # Refusals
    "refused": ("Please check", "请检查"),
    "refused_empty": ("There is no text yet; write something.", "还没有文字，请先写点什么。"),
    "refused_type": ("Expected text, not {kind}; send a string.", "需要文本，而不是 {kind}；请发送字符串。"),
    "refused_long": (
        "The text has {length} characters; at most {limit} fit. Please shorten it.",
        "文本有 {length} 个字符，最多 {limit} 个。请缩短。",
    ),
    "refused_surrogate": (
        "The text holds half of a character (a lone surrogate); remove it.",
        "文本含有半个字符（孤立的代理项）；请删除。",
    ),
    "refused_history": (
        "The history must be a list of at most {limit} messages with role and content.",
        "历史必须是最多 {limit} 条、带有 role 和 content 的消息列表。",
    ),
    "refused_number": ("{name} must be a number, not {value}.", "{name} 必须是数字，而不是 {value}。"),
    "refused_beams": ("This page searches with at most {limit} beams.", "本页束宽最多 {limit}。"),
    "refused_tokens": ("This page writes at most {limit} tokens an answer.", "本页每个回答最多 {limit} 个词元。"),
    "refused_queue": (
        "{n} requests are waiting already; please try again in a moment.",
        "已有 {n} 个请求在等待，请稍后再试。",
    ),
    "refused_time": (
        "This took longer than {seconds} s, the time limit; try a shorter text.",
        "用时超过了 {seconds} 秒的上限；请换短一些的文本。",
    ),
    "refused_size": (
        "The request is larger than {limit} MB; send less.",
        "请求超过 {limit} MB；请少发一些。",
    ),
    "refused_file": ("This page takes no files; send text.", "本页不接收文件；请发送文本。"),
    "refused_request": (
        "This request makes no sense here; GET /gradio_api/info says what can be asked.",
        "无法理解这个请求；GET /gradio_api/info 说明可以怎样请求。",
    ),
    "quoted": ("{sentence}", "服务器说：{sentence}"),
    "failed": (
        "Something went wrong here, not with your text; the server's log says what.",
        "服务器出了问题，与你的文本无关；详情见服务器日志。",
    ),
}


def say(language: Language, key: str, **values: object) -> str:
    """A sentence in a language, with its values filled in."""
    english, chinese = STRINGS[key]
    return (chinese if language == "zh" else english).format(**values)


def dictionary(language: Language) -> dict[str, str]:
    """All sentences of a language, for the browser."""
    return {key: pair[1 if language == "zh" else 0] for key, pair in STRINGS.items()}
