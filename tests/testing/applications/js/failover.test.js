'use strict';

// The Node.js client against a cluster of `trioha dev`, which the test itself hurts.

const assert = require('node:assert');
const test = require('node:test');
const { setTimeout } = require('node:timers/promises');
const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');

const COUNT = 20;
const shared = { httpclient, nameSrv: process.env.NAMESRV_ADDR, pollNameServerInteval: 500, rebalanceInterval: 500 };

async function hand(path, fields = {}) {
  const answer = await fetch(process.env.TRIOHA_DEV_FAULTS + path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(fields),
  });
  assert.strictEqual(answer.status, 200, await answer.text());
}

async function sendOne(producer, body) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await producer.send(new Message('orders', body));
    } catch (error) {
      // Its route still names the master that was killed.
      if (attempt === 100) throw error;
      await setTimeout(100);
    }
  }
}

async function send(producer, sent, first) {
  for (let number = first; number < first + COUNT; number++) {
    const body = `order ${number}`;
    await sendOne(producer, body);
    sent.add(body);
  }
}

test('orders survive the loss of the master', async () => {
  const sent = new Set();
  const received = new Set();
  const producer = new Producer({ ...shared, producerGroup: 'shop' });
  const consumer = new Consumer({ ...shared, consumerGroup: 'billing' });
  // They tell of the connections to the master that was killed.
  producer.on('error', () => {});
  consumer.on('error', () => {});
  const all = new Promise(resolve => {
    consumer.subscribe('orders', '*', async message => {
      const body = message.body.toString();
      if (body.startsWith('order')) received.add(body); // another one made the topic
      if (received.size === 2 * COUNT) resolve();
    });
  });
  await consumer.ready();
  await producer.ready();
  await send(producer, sent, 0);
  await hand('/brokers/broker-a-0/kill');
  await hand('/fail_over', { force: true });
  await send(producer, sent, COUNT);
  await all;
  assert.deepStrictEqual([...received].sort(), [...sent].sort());
});
