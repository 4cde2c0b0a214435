"""Texts with their sentences, written by hand: `¦` stands where one ends. Spaces around it belong to neither."""

GERMAN = """
Guten Morgen!
Guten Morgen! ¦Wie geht es dir? ¦Mir geht es gut.
Ich bin müde. ¦Ich gehe jetzt schlafen.
Hallo.¦Wie geht's?
Hallo!¦Wie geht's?¦Gut.
hallo! ¦wie geht's? ¦mir geht es gut
ich bin müde. ¦ich gehe jetzt schlafen. ¦gute nacht
Dr. Müller wohnt in Berlin. ¦Er ist Arzt.
Prof. Dr. Schmidt hält heute eine Rede. ¦Wir hören zu.
Ich mag Obst, z. B. Äpfel und Birnen. ¦Du auch?
Ich mag Obst, z.B. Äpfel und Birnen. ¦Du auch?
Er kommt morgen, d. h. am Montag. ¦Dann reden wir.
Wir brauchen Milch, Brot, Eier usw. ¦Kannst du einkaufen?
Wir brauchen Milch, Brot usw. und dann noch Wein.
Das kostet ca. 20 Euro. ¦Das ist viel.
Er wohnt in der Hauptstr. 5. ¦Sie wohnt in Nr. 7.
Johann Sebastian Bach, kurz J. S. Bach, war Komponist. ¦Er lebte in Leipzig.
J. S. Bach war Komponist.
Am 3. Oktober 1990 wurde Deutschland wiedervereinigt. ¦Das war ein Mittwoch.
Der 1. Mai ist ein Feiertag. ¦Wir haben frei.
Wir treffen uns am 24. Dezember. ¦Bis dann!
Er wurde am 12.05.1980 geboren. ¦Sie am 1.1.1990.
Im 19. Jahrhundert gab es keine Autos. ¦Man ging zu Fuß.
Das ist mein 2. Versuch. ¦Der erste ging schief.
Ich bin 42. ¦Er ist 30.
Das war im Jahr 1990. ¦Danach zog er um.
Die Miete kostet 1.250,50 Euro im Monat. ¦Das ist zu teuer.
Pi ist ungefähr 3.14. ¦Das weiß jeder.
Der Zug fährt um 14.30 Uhr. ¦Komm nicht zu spät!
Der Zug fährt um 14:30 Uhr. ¦Beeil dich!
Besuchen Sie www.beispiel.de. ¦Dort steht alles.
Mehr unter https://www.beispiel.de/seite.html?id=3&x=1. ¦Bis bald!
Schreib an anna.meier@post.beispiel.de! ¦Sie antwortet schnell.
„Komm her!“, sagte er.
„Komm her!“ ¦Er winkte mir zu.
»Was willst du?«, fragte sie. ¦Er schwieg.
"Komm her!" rief er laut. ¦Niemand kam.
Er sagte: „Ich komme.“ ¦Dann ging er.
Er sagte: „Ich komme. ¦Warte auf mich.“ ¦Dann ging er.
Sie rief: "Halt!" ¦Er blieb stehen.
Er kam (wie immer!) zu spät. ¦Alle warteten.
Er kam zu spät (der Bus war weg). ¦Alle warteten.
(Das ist ein Witz.) ¦Lach doch!
Naja... ¦Ich weiß nicht.
Ich weiß nicht... vielleicht morgen.
Ich weiß nicht … vielleicht morgen. ¦Mal sehen.
Was?! ¦Das glaube ich nicht!!!
Wirklich??? ¦Ja!
Ja. ¦– Nein.
Er heißt Tom. ¦– Wirklich?
Er ist u. a. Lehrer und Autor. ¦Er schreibt viel.
Die Firma Meier & Co. KG ist pleite. ¦Schade.
Sie wohnt bei Fr. Schulz. ¦Die ist nett.
Siehe Abb. 3 auf S. 12. ¦Dort steht es.
Das gilt bzw. galt nur für Kinder. ¦Erwachsene zahlen mehr.
Er arbeitet seit Jan. 2020 hier. ¦Er bleibt.
Ludwig XIV. war König von Frankreich. ¦Er lebte in Versailles.
Das ist Plan B. ¦Einen anderen haben wir nicht.
Tom und ich. ¦Mehr nicht.
Ich habe 3 Katzen. ¦2 davon sind schwarz.
Er fragte: Warum? ¦Ich schwieg.
Das Wetter ist schön 🙂 und warm.
Das Wetter ist schön! 🙂 ¦Gehen wir raus?
Vielen Dank im Voraus. ¦Mit freundlichen Grüßen
Die Datei heißt bericht.txt. ¦Öffne sie.
Er verdient 2.500 Euro. ¦Brutto.
Stimmt das? ¦"Ja", sagte sie. ¦"Natürlich."
Die Temperatur beträgt -3,5 Grad. ¦Zieh dich warm an!
Der Laden ist von Mo. bis Fr. geöffnet.
Ich wohne in St. Gallen. ¦Und du?
""".strip().splitlines()

CHINESE = """
你好！
你好！¦你叫什么名字？¦我叫王明。
今天天气很好。¦我们去公园吧。
今天天气很好。 ¦我们去公园吧。
你好!¦你叫什么?
我饿了.¦我们吃饭吧.
他说：“你好！”¦然后他走了。
“你好！”他说。
“你好！”他笑着说。¦我没有回答。
他问：“你是谁？”¦我没有回答。
他说：「我不知道。」¦我也不知道。
『真的吗？』她問道。
我……我不知道。
我真的不知道该怎么办……¦你能帮我吗？
他来了（真的！）然后又走了。
（这是一个笑话。）¦别生气。
什么？！¦你再说一遍！
圆周率大约是3.14。¦你知道吗？
现在是14:30。¦快走吧！
请看 https://www.example.com/a.html?b=1。¦谢谢！
我的邮箱是wang@example.com。¦请写信给我。
他喜欢吃苹果；¦我喜欢吃梨。
我喜歡你。¦你喜歡我嗎？¦請告訴我！
我叫Tom。¦我来自美国。
王老师三月五号来。¦他很忙。
“好。”，他回答。
你吃饭了吗？¦吃了。¦你呢？
2024年5月1日是星期三。¦我们放假。
""".strip().splitlines()

ENGLISH = """
Hello. ¦How are you?
Mr. Smith lives in New York. ¦He is a doctor.
I like fruit, e.g. apples and pears. ¦Do you?
He was born in the U.S. in 1980. ¦He left early.
It costs $3.50. ¦That is cheap.
"Come here!" he said. ¦Nobody came.
She asked, "Why?" ¦He said nothing.
See you at 5 p.m. tomorrow. ¦Bye!
J. R. R. Tolkien wrote it. ¦I read it twice.
Wait... ¦What?
The company, Acme Inc., is big. ¦It is old.
Visit example.com. ¦It is free.
It was good, etc. ¦We left.
Tom and I. ¦Nobody else.
""".strip().splitlines()

# A line break always ends a sentence, and so does the end of a list's item.
LINES = (
    "Liebe Anna,\n¦vielen Dank für deinen Brief. ¦Ich habe mich gefreut!\n\n¦Viele Grüße\n¦Dein Tom",
    "Einkaufsliste:\n¦- Milch\n¦- Brot\n¦- Eier",
    "Heute:\n¦1. Milch kaufen\n¦2. Brot backen\n¦3. Schlafen",
    "  Eingerückt.\n\t¦Auch eingerückt. ¦Und weiter.",
    "Erste Zeile\r\n¦Zweite Zeile\r¦Dritte Zeile\u2028¦Vierte Zeile",
    "第一行\n¦第二行。¦第三句\n\n\n¦第四行",
    "Titel ohne Punkt\n¦Der Text beginnt hier. ¦Er endet hier.",
)

CASES = (*GERMAN, *CHINESE, *ENGLISH, *LINES)
