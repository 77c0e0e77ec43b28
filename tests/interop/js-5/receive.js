// The stock Node.js client of RocketMQ 5: sends five messages, receives and acknowledges them, and
// says as JSON what it received. Arguments: the proxy's address, a topic, a group.
'use strict';
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const [endpoints, topic, consumerGroup] = process.argv.slice(2);
const logger = { log() {}, debug() {}, info() {}, warn() {}, error() {} };

async function main() {
  const producer = new Producer({ endpoints, logger });
  await producer.startup();
  for (let i = 0; i < 5; i += 1) {
    await producer.send({ topic, body: Buffer.from(`js-${i}`) });
  }
  const subscriptions = new Map().set(topic, '*');
  const consumer = new SimpleConsumer({ endpoints, logger, consumerGroup, subscriptions, awaitDuration: 5000 });
  await consumer.startup();
  const bodies = [];
  const until = Date.now() + 20000;
  while (bodies.length < 5 && Date.now() < until) {
    try {
      for (const message of await consumer.receive(16, 10000)) {
        await consumer.ack(message);
        bodies.push(message.body.toString());
      }
    } catch (error) {
      // The proxy does not know the client's settings yet.
      console.error(String(error));
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
  console.log(JSON.stringify(bodies.sort()));
  process.exit(0);
}

main();
