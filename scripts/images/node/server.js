// Answers on port 8082.
const app = require("express")();
app.get("/", (_, answer) => answer.send(require("lodash").repeat("x", 3)));
app.listen(8082, "127.0.0.1");
